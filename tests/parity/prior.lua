-- prior.lua -- the diffusion prior of DALLE2-pytorch 1.15.6.  Numbers are
-- float64 evaluations of its unmodified modules.

local function base(more)
  local o = { dim = 16, depth = 2, num_timesteps = 10, max_text_len = 6,
              dim_head = 8, heads = 2 }
  for key, value in pairs(more) do
    o[key] = value
  end
  return o
end

local function inputs(more)
  local i = {
    image_embed = { 2, 16 }, text_embed = { 2, 16 },
    text_encodings = { 2, 4, 16, zero = { { 0, 3 }, { 1, 2 }, { 1, 3 } } },
    t = { 2, ints = { 3, 7 } },
  }
  for key, value in pairs(more or {}) do
    i[key] = value or nil
  end
  return i
end

local P1 = { normformer = true }

-- The loss of the P1 network inside of DiffusionPrior.
local function loss(name, options, expect)
  options.net, options.image_embed_dim, options.timesteps = base(P1), 16, 10
  return { name = name, part = "diffusion_prior", options = options,
           inputs = inputs{ noise = { 2, 16 } },
           expect = expect }
end

local function sample(name, options, call, expect)
  options.net, options.image_embed_dim, options.timesteps = base(P1), 16, 10
  return { name = name, part = "sample", options = options, call = call,
           inputs = {
             text_embed = { 2, 16 },
             text_encodings = { 2, 4, 16,
                                zero = { { 0, 3 }, { 1, 2 }, { 1, 3 } } } },
           draws = "randn", expect = expect }
end

local without_text = inputs()
without_text.text_encodings = nil

return {
  model = "models/dalle2/parts.lua",
  { name = "P1", part = "prior", options = base(P1), inputs = inputs(),
    expect = {
      params = 8580,
      out = { sum = -2.917456813, abs = .4779254714,
              first = { -.0567676, -.07014083, -.98927401 },
              last = .068163176 },
      mse = .523419188, gradL2 = 22.70029726,
      grads = {
        ["causal_transformer.layers.0.0.null_kv"] = 3.0698537,
        ["causal_transformer.rel_pos_bias.relative_attention_bias.weight"]
          = .16869772,
        null_text_encodings = 8.8917453,
      } } },
  { name = "P1b", part = "prior", options = base(P1), inputs = without_text,
    expect = { out = { sum = -5.89665434, abs = .4610021446,
                       last = .089687052 } } },
  { name = "P1c", part = "prior", options = base(P1), inputs = inputs(),
    call = { cond_scale = 2.5 },
    expect = { out = { sum = 3.672768477, abs = 1.279335684,
                       last = .079898228 } } },
  { name = "P2", part = "prior",
    options = { dim = 16, depth = 2, max_text_len = 6, dim_head = 8, heads = 2,
                num_time_embeds = 2, num_image_embeds = 2, num_text_embeds = 2,
                self_cond = true, norm_in = true, rotary_emb = false,
                final_proj = false, norm_out = false },
    inputs = inputs(),
    expect = {
      params = 16464,
      out = { sum = -.9260319196, abs = 1.498197421,
              first = { -1.9946182, -3.3464929, -.71922636 } },
      mse = 3.745498444, gradL2 = 38.66490897 } },
  loss("P3", {}, { loss = 5.839145873 }),
  loss("P3 noise", { predict_x_start = false }, { loss = .6520683255 }),
  loss("P3 v", { predict_v = true }, { loss = 4.926409278 }),
  loss("P3 clamp", { training_clamp_l2norm = true, loss_type = "l1" },
       { loss = 2.065305851 }),
  sample("P4", {}, {},
         { out = { sum = -.1715510265, abs = .1036126922, last = .14168322 } }),
  sample("P4 ddim", { sample_timesteps = 5 }, { cond_scale = 1.5 },
         { out = { sum = .2347641012, abs = .1366098641,
                   last = .001826369 } }),
}
