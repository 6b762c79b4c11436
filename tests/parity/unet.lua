-- unet.lua -- the U-Net of DALLE2-pytorch 1.15.6.  Numbers are float64
-- evaluations of its unmodified modules.

local function options(more)
  local o = { dim = 8, image_embed_dim = 12, cond_dim = 10,
              dim_mults = { 1, 2 }, attn_dim_head = 4, attn_heads = 2,
              resnet_groups = 4, num_resnet_blocks = 1,
              cond_on_image_embeds = true }
  for key, value in pairs(more or {}) do
    o[key] = value
  end
  return o
end

local function inputs(more)
  local i = { x = { 2, 3, 8, 8 }, image_embed = { 2, 12 },
              t = { 2, ints = { 3, 7 } } }
  for key, value in pairs(more or {}) do
    i[key] = value
  end
  return i
end

local text = { 2, 4, 14, zero = { { 0, 3 }, { 1, 2 }, { 1, 3 } } }
local picture = { 2, 3, 8, 8 }
local U2 = options{ cond_on_text_encodings = true, text_embed_dim = 14,
                    max_text_len = 6, self_attn = { true, false },
                    channels_out = 6 }

return {
  model = "models/dalle2/parts.lua",
  { name = "U1", part = "unet", options = options(), inputs = inputs(),
    expect = {
      params = 174863,
      out = { sum = 34.24187157, abs = .3074731546,
              first = { -.074428165, -.1818261, -.36476549 }, last = .103212 },
      mse = .5240312335, gradL2 = 2.243655264,
      grads = {
        ["mid_attn.fn.fn.null_kv"] = 5.9973947e-4,
        ["downs.1.2.0.cross_attn.to_kv.weight"] = .025130436,
        ["init_conv.convs.2.weight"] = .66812692,
      } } },
  { name = "U2", part = "unet", options = U2,
    inputs = inputs{ text_encodings = text },
    expect = {
      params = 172972,
      out = { sum = -107.9601539, abs = .4024155994, last = .53993962 },
      mse = .6500852531, gradL2 = 2.293825061,
      grads = { null_text_embed = .029998321 } } },
  { name = "U2b", part = "unet", options = U2,
    inputs = inputs{ text_encodings = text }, call = { cond_scale = 3 },
    expect = { out = { sum = -104.277686, abs = .4259355151 } } },
  { name = "U4", part = "unet",
    options = options{ memory_efficient = true,
                       cross_embed_downsample = true,
                       pixel_shuffle_upsample = false,
                       combine_upsample_fmaps = true,
                       dim_mults = { 1, 2, 2 } },
    inputs = inputs(),
    expect = {
      params = 317599,
      out = { sum = 16.83459966, abs = .3155296575, last = -.74717375 },
      mse = .5312250454, gradL2 = 3.746041545 } },
  { name = "U5", part = "unet",
    options = options{ resnet_weight_standardization = true,
                       lowres_cond = true, lowres_noise_cond = true,
                       cond_on_image_embeds = false,
                       final_conv_kernel_size = 3,
                       scale_skip_connection = true,
                       init_cross_embed = false, num_resnet_blocks = 2 },
    inputs = inputs{ lowres_cond_img = picture,
                     lowres_noise_level = { 2, ints = { 200, 450 } } },
    expect = {
      params = 234712,
      out = { sum = -21.54777367, abs = .2960952156, last = -.085965557 },
      mse = .5000443404, gradL2 = 2.328986367 } },
}
