-- decoder.lua -- losses, sampler, trainer and resizing of DALLE2-pytorch
-- 1.15.6.  Numbers are float64 evaluations of its unmodified modules.

local unet = { dim = 8, image_embed_dim = 12, cond_dim = 10,
               dim_mults = { 1, 2 }, attn_dim_head = 4, attn_heads = 2,
               resnet_groups = 4, num_resnet_blocks = 1 }

local function options(more)
  local o = { unet = { unet }, image_sizes = { 8 }, timesteps = 100,
              image_cond_drop_prob = 0, text_cond_drop_prob = 0 }
  for key, value in pairs(more or {}) do
    o[key] = value
  end
  return o
end

local function at(first, second)
  return {
    image = { 2, 3, 8, 8, fill = "img", scale = .5, add = .5 },
    image_embed = { 2, 12 }, noise = { 2, 3, 8, 8 },
    t = { 2, ints = { first, second } },
  }
end

local first8 = { 2, 3, 8, 8, fill = "img" }
local first16 = { 2, 3, 16, 16, fill = "img16" }

return {
  model = "models/dalle2/parts.lua",
  -- At t = 0 the likelihood is a difference of two nearly equal tails: the
  -- original's own float32 is as far off as expect_f32 says.
  { name = "D1", part = "decoder", options = options(), inputs = at(0, 57),
    expect = { loss = .5110837081, gradL2 = 2.204610688 },
    expect_f32 = { loss = .511121333, gradL2 = 2.207255 } },
  { name = "D1'", part = "decoder", options = options(), inputs = at(5, 57),
    expect = { loss = .489997029, gradL2 = 2.185920682 } },
  { name = "D2", part = "decoder",
    options = options{ learned_variance = false, beta_schedule = { "linear" },
                       loss_type = "huber", p2_loss_weight_gamma = 1 },
    inputs = at(0, 57),
    expect = { loss = .114194609, gradL2 = .6040917696 } },
  { name = "D3", part = "decoder",
    options = options{ predict_v = true, learned_variance = false },
    inputs = at(0, 57),
    expect = { loss = .5082135953, gradL2 = 2.289446976 } },
  { name = "D3b", part = "decoder", options = options{ predict_v = true },
    inputs = at(0, 57), expect = { loss = .5247704124 },
    expect_f32 = { loss = .52480793 } },
  { name = "D4", part = "decoder_sample", options = options{ timesteps = 25 },
    inputs = { image_embed = { 2, 12 } }, draws = "randn",
    expect = { out = { sum = 172.988231, abs = .4504901849,
                       first = { 1, .49493782, .8192764 },
                       last = .026936687 } } },
  { name = "D6", part = "lowres", options = { blur_prob = 1 },
    inputs = { image = { 2, 3, 16, 16, fill = "img16", scale = .5,
                         add = .5 } },
    call = { downsample_image_size = 8, target_image_size = 16,
             blur_kernel_size = 3, blur_sigma = .6 },
    expect = { out = { sum = 776.1596221, abs = .505312254,
                       first = { .40922283 }, last = .65085971 } } },
  { name = "D7", part = "resize", inputs = { image = first16 },
    call = { size = 12 },
    expect = { out = { sum = 6.356302126, last = .42079979 } } },
  { name = "D7 up", part = "resize", inputs = { image = first8 },
    call = { size = 12 },
    expect = { out = { sum = -12.18063433, last = -.68885328 } } },
  { name = "O1", part = "decoder_step", steps = 6,
    options = { decoder = options(), lr = 1e-3, wd = 1e-2, eps = 1e-8,
                max_grad_norm = .5, warmup_steps = 4, ema_beta = .99,
                ema_update_after_step = 2, ema_update_every = 1 },
    inputs = {
      image = { 2, 3, 8, 8, fill = "img<s>", scale = .5, add = .5 },
      noise = { 2, 3, 8, 8, fill = "noise<s>" }, image_embed = { 2, 12 },
      t = { 2, ints = function(s)
        return { 7 * s % 100, (31 * s + 5) % 100 }
      end },
    },
    expect = { steps = {
      { loss = .4911724384, grad_norm = 2.1503742, lr = 2.5e-4,
        norm = { params = 57.4221966, ema = 57.4221966 } },
      { loss = .4566504563, grad_norm = 2.337639, lr = 5e-4,
        norm = { params = 57.42214837, ema = 57.42214837 } },
      { loss = .5072835229, grad_norm = 2.0244187, lr = 7.5e-4,
        norm = { params = 57.42255892, ema = 57.42255892 } },
      { loss = .4329734839, grad_norm = "2.0449000", lr = 1e-3,
        norm = { params = 57.42268534, ema = 57.42254235 } },
      { loss = .4903137111, grad_norm = 1.7343818, lr = 1e-3,
        norm = { params = 57.42329879, ema = 57.42275575 } },
      { loss = .4382031568, grad_norm = 1.7624445, lr = 1e-3,
        norm = { params = 57.42446144, ema = 57.42324795 } },
    } } },
}
