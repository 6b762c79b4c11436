-- dpc eval --cases %
local net = { dim = 16, depth = 1, max_text_len = 6, dim_head = 8, heads = 2,
              num_timesteps = 10 }
local x = { 2, 16 }
local function given(t)
  return { image_embed = x, text_embed = x, t = t }
end
return {
  model = "models/dalle2/parts.lua",
  { name = "look-up", part = "prior", options = net, expect = { out = { sum = 1 } },
    inputs = given{ 2, ints = { 0, 99 } } },
  { name = "no t", part = "prior", options = net, expect = { out = { sum = 1 } },
    inputs = given(nil) },
  { name = "text", part = "prior", options = net, expect = { out = { sum = 1 } },
    inputs = given{ 2, ints = { 0, 9 } },
    call = {
      cond_scale = "x" } },
  { name = "typo", part = "unet", expect = { out = { sum = 1 } },
    options = { dim = 8,
      dim_mutls = { 1, 2 } } },
  { name = "noise", part = "sample",
    expect = { out = { sum = -1.128341722 } },
    options = { net = net, image_embed_dim = 16, timesteps = 10,
                condition_on_text_encodings = false },
    inputs = { text_embed = x } },
}
