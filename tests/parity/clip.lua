-- clip.lua -- x-clip 0.14.4, coca-pytorch 0.1.0 and their adapters in
-- DALLE2-pytorch 1.15.6.

local options = { dim_text = 12, dim_image = 16, dim_latent = 8,
                  num_text_tokens = 50, text_enc_depth = 1,
                  visual_enc_depth = 1, text_seq_len = 6, text_heads = 2,
                  text_dim_head = 4, visual_heads = 2, visual_dim_head = 8,
                  visual_image_size = 8, visual_patch_size = 4,
                  visual_patch_dropout = 0 }
local inputs = {
  text = { 2, 6, ints = { { 8, 34, 11, 14, 48, 30 },
                          { 36, 11, 39, 18, 0, 0 } } },
  image = { 2, 3, 8, 8, fill = "img", scale = .5, add = .5 },
}

local function with(a, b)
  local c = {}
  for key, value in pairs(a) do c[key] = value end
  for key, value in pairs(b) do c[key] = value end
  return c
end

local coca = { dim = 16, num_tokens = 50, unimodal_depth = 2,
               multimodal_depth = 1, image_dim = 10, num_img_queries = 5,
               dim_head = 4, heads = 2 }
local overrides = { image_size = 8, image_channels = 3, max_text_len = 6 }

return {
  model = "models/dalle2/parts.lua",
  { name = "C1", part = "clip", options = options, inputs = inputs,
    expect = { loss = .6640955999, gradL2 = .9187488206,
               grads = { temperature = .023614072 } } },
  { name = "C1 adapter", part = "clip_adapter", options = options,
    inputs = inputs,
    expect = { text_embed = { sum = -2.826925054 },
               text_encodings = { sum = -1.62515058 },
               image_embed = { sum = .2423471466 } } },
  { name = "all tokens, extra projections, decoupled", part = "clip",
    options = with(options, { use_all_token_embeds = true,
                              extra_latent_projection = true,
                              decoupled_contrastive_learning = true }),
    inputs = inputs,
    expect = { loss = -.04351425, gradL2 = 1.091385,
               grads = { temperature = .04351425 } } },
  { name = "rotary text, similarities kept alike", part = "clip",
    options = with(options, { text_rotary_pos_emb = true, text_dim_head = 6,
                              sim_reg_loss_weight = .3,
                              extra_latent_projection = true }),
    inputs = inputs,
    expect = { params = 8817, loss = .831036, gradL2 = 8.33866,
               grads = { temperature = .012861 } } },
  { name = "a quarter of the image's tokens", part = "clip",
    options = with(options, { use_all_token_embeds = true,
                              downsample_image_embeds = true,
                              visual_patch_size = 2 }),
    inputs = inputs,
    expect = { params = 8841, loss = .68141875, gradL2 = .7339087,
               grads = { temperature = .009116425 } } },
  { name = "two views of text and image", part = "clip",
    options = with(options, { multiview_loss_weight = .2 }),
    inputs = with(inputs, {
      aug_text = { 2, 6, ints = { { 3, 4, 5, 6, 7, 8 },
                                  { 9, 8, 7, 6, 0, 0 } } },
      aug_image = { 2, 3, 8, 8, fill = "aug" } }),
    expect = { params = 8697, loss = .67870545, gradL2 = .6966686,
               grads = { temperature = .008086114 } } },
  { name = "CoCa's text", part = "clip_adapter", options = coca,
    call = { make = "coca", overrides = overrides },
    inputs = { text = inputs.text },
    expect = { text_embed = { sum = -.018085, abs = .8387902 },
               text_encodings = { sum = 8.81799, abs = .3006014 } } },
  { name = "CoCa's image", part = "coca_image", options = coca,
    call = { overrides = overrides }, inputs = { image = { 2, 7, 10 } },
    expect = { out = { sum = -.06188937, abs = .8717393 } } },
}
