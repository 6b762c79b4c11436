-- qwen.lua -- Qwen-Image's transformer (diffusers 0.40) and its VAE.  Numbers
-- are float64 evaluations of the unmodified modules.

local options = { patch_size = 2, in_channels = 16, out_channels = 4,
                  num_layers = 2, attention_head_dim = 16,
                  num_attention_heads = 4, joint_attention_dim = 12,
                  axes_dims_rope = { 8, 4, 4 } }

local function inputs(tokens, mask)
  return {
    hidden_states = { 2, tokens, 16 }, encoder_hidden_states = { 2, 5, 12 },
    timestep = { 2, values = { .7, .3 } },
    encoder_hidden_states_mask = mask and { 2, 5, ints = mask },
  }
end

local one = { img_shapes = { { 1, 4, 6 } } }
local two = { img_shapes = { { 1, 4, 6 }, { 1, 5, 3 } } }
local masked = { { 1, 1, 1, 1, 1 }, { 1, 1, 1, 0, 0 } }

local function block(name, import, expect)
  return { name = name, part = "block", call = one,
           options = { dim = 64, num_attention_heads = 4,
                       attention_head_dim = 16, axes_dims_rope = { 8, 4, 4 },
                       import = import },
           inputs = { img = { 2, 24, 64 }, txt = { 2, 5, 64 },
                      temb = { 2, 64 } },
           expect = expect }
end

return {
  model = "models/qwen_image/transformer.lua",
  { name = "Q1", part = "transformer", options = options, inputs = inputs(24),
    call = one,
    expect = {
      params = 330780,
      out = { sum = -23.48344164, abs = .476928281,
              first = { .42855145, -.10603956, -.6518311 },
              last = 1.0527523 },
      mse = .6723065776, gradL2 = .969091032,
      grads = {
        ["transformer_blocks.0.img_mod.1.weight"] = .019373018,
        ["transformer_blocks.0.attn.norm_k.weight"] = .0010820655,
      } } },
  { name = "Q2", part = "transformer", options = options,
    inputs = inputs(24, masked), call = one,
    expect = { out = { sum = -23.19806451,
                       first = { .42855145, -.10603956, -.6518311 },
                       last = 1.0501653 },
               mse = .6719395346 } },
  { name = "Q3", part = "transformer", options = options, inputs = inputs(39),
    call = two,
    expect = { out = { sum = -40.94665757, last = 1.3296609 },
               target = { sum = -43.56562008 },
               mse = .6903275862, gradL2 = .89853727 } },
  block("Q5", nil, { txt = { sum = -10.61391114 },
                     img = { sum = 7.285212611 } }),
  block("Q5 diffsynth", "diffsynth", { txt = { sum = -10.66533765 },
                                       img = { sum = 7.273610894 } }),
  { name = "Q6", part = "flow", options = options,
    inputs = { x0 = { 2, 4, 8, 12 }, noise = { 2, 4, 8, 12 },
               sigma = { 2, values = { .7, .3 } },
               encoder_hidden_states = { 2, 5, 12 } },
    expect = { loss = .9786015221, gradL2 = .9719010241 } },
  { name = "Q8", part = "vae", model = "models/qwen_image/vae.lua",
    options = { base_dim = 8 }, inputs = { x = { 1, 3, 16, 16,
                                                 fill = "img16" } },
    expect = { params = 924491,
               z = { sum = 3.496947083, last = .14542181 },
               decode = { sum = 1.423414995, last = .0072041134 } } },
  { name = "Q9", part = "schedule",
    expect = { out = { first = { "1.0", ".9996", ".9991" }, last = ".0200" },
               reachable = 376 } },
}
