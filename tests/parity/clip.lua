-- clip.lua -- x-clip 0.14.4 and its adapter in DALLE2-pytorch 1.15.6.

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
}
