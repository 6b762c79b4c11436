-- prior.lua -- DiffusionPrior: losses and samplers around the network.
--
-- Embeddings are multiplied by `image_embed_scale`, so that their elements
-- have variance one, and divided by it at the end.  Shapes: b batch, k width.

local nn = require "nn"
local layers = require "dalle2.full.layers"
local options = require "dalle2.full.options"
local schedule = require "dalle2.full.schedule"
local prior_net = require "dalle2.full.prior_net"

local declared = {
  net = options.section, clip = options.any,
  image_embed_dim = options.maybe("size"),
  image_size = options.maybe("size"), image_channels = 3,
  timesteps = 1000, sample_timesteps = options.maybe("size"),
  cond_drop_prob = options.share(0),
  text_cond_drop_prob = options.maybe("share"),
  image_cond_drop_prob = options.maybe("share"), loss_type = "l2",
  predict_x_start = true, predict_v = false, beta_schedule = "cosine",
  condition_on_text_encodings = true, sampling_clamp_l2norm = false,
  sampling_final_clamp_l2norm = false, training_clamp_l2norm = false,
  init_image_embed_l2norm = false,
  image_embed_scale = options.maybe("positive"),
  clip_adapter_overrides = options.any,
}

local prior = {}
prior.__index = prior

-- clip_width: of the CLIP given, where there is one.
local function width_check(o, net, clip_width)
  local width = o.image_embed_dim or clip_width
  if not width then
    options.fail(o, "image_embed_dim", "image_embed_dim is missing, and no "
                 .. "clip is given that says it")
  end
  if net.dim ~= width then
    options.fail(o, "image_embed_dim", "the network's dim is %d, but "
                 .. "image_embed_dim is %d", net.dim, width)
  end
  if clip_width and clip_width ~= width then
    options.fail(o, "image_embed_dim", "clip's embeddings have %d elements, "
                 .. "but image_embed_dim is %d", clip_width, width)
  end
  return width
end

local function target_name(o)
  return o.predict_v and "v" or o.predict_x_start and "x0" or "noise"
end

-- given: the constructor's keywords, `net` being the network's; scope: of
-- the network's weights.
local function new(given, clip_width, scope)
  local o = options.take(given, "DiffusionPrior", declared)
  local net = prior_net.new(o.net, scope)
  local width = width_check(o, net, clip_width)
  local function fail_at(key)
    return function(text) options.fail(o, key, "%s", text) end
  end
  local T = o.timesteps
  if o.net.num_timesteps and o.net.num_timesteps ~= dpc.null
      and o.net.num_timesteps < T then
    options.fail(o, "timesteps", "timesteps is %d, but the network has "
                 .. "embeddings of %d steps (net.num_timesteps)", T,
                 o.net.num_timesteps)
  end
  if o.sample_timesteps and o.sample_timesteps > T then
    options.fail(o, "sample_timesteps", "sample_timesteps is %d, more than "
                 .. "timesteps, %d", o.sample_timesteps, T)
  elseif o.sample_timesteps == 1 and T > 1 then
    options.fail(o, "sample_timesteps", "sample_timesteps is 1; DDIM takes "
                 .. "one step fewer: 2 is the least")
  end
  return setmetatable({
    o = o, net = net, width = width, T = T, target = target_name(o),
    scale = o.image_embed_scale or width ^ 0.5,
    text_drop = o.text_cond_drop_prob or o.cond_drop_prob,
    image_drop = o.image_cond_drop_prob or o.cond_drop_prob,
    noise = schedule.new(o.beta_schedule, T, { gamma = 0, k = 1 },
                         fail_at("beta_schedule")),
    loss_of = schedule.loss(o.loss_type, fail_at("loss_type")),
  }, prior)
end

-- The text condition, without what is not asked for.
function prior:condition(text_embed, text_encodings)
  if self.o.condition_on_text_encodings and not text_encodings then
    dpc.fail("DiffusionPrior: condition_on_text_encodings is set, but there "
             .. "are no text_encodings")
  end
  return {
    text_embed = text_embed,
    text_encodings = self.o.condition_on_text_encodings and text_encodings
        or nil,
  }
end

-- x [b, k] on the sphere that embeddings lie on.
function prior:clamped(x)
  return nn.l2_norm(x) * self.scale
end

---- training ----

-- image_embed [b, k] of CLIP, not scaled; c from `condition`; more:
--   times i32 [b], noise [b, k], coin f32 [] (1: condition on an own guess);
--   what is absent is drawn.  f32 [].
function prior:loss(image_embed, c, more)
  local o, x0 = self.o, image_embed * self.scale
  local t = more.times or self.noise:draw(x0:dim(0))
  local noise = more.noise or dpc.random("normal", x0:dims())
  local k = self.noise:at(layers.whole(t), x0)
  local x = schedule.noised(k, x0, noise)
  local past
  if self.net.self_cond then
    local guess = self.net:forward(x, t, c):stop()
    local coin = more.coin or dpc.random("uniform", {}):lt(0.5) -- []
    past = guess * coin
  end
  local said = self.net:forward(x, t, {
    text_embed = c.text_embed, text_encodings = c.text_encodings,
    self_cond = past, text_drop = self.text_drop,
    image_drop = self.image_drop })
  if o.predict_x_start and o.training_clamp_l2norm then
    said = self:clamped(said)
  end
  local want = self.target == "x0" and x0 or self.target == "noise" and noise
      or schedule.v(k, x0, noise)
  return nn.mean(self.loss_of(said, want))
end

---- sampling ----

-- What the network says at step s, as x0 [b, k].  s has t and the schedule.
function prior:start(x, s, c, past, scale)
  local o, b = self.o, x:dim(0)
  local t = type(s.t) == "number" and dpc.const(s.t, { b })
      or s.t:move("->b", { b = b })
  local said = self.net:guided(x, t, {
    text_embed = c.text_embed, text_encodings = c.text_encodings,
    self_cond = self.net.self_cond and past or nil }, scale)
  local x0 = schedule.start(s, x, said, self.target)
  if not o.predict_x_start then
    x0 = x0:maximum(-1):minimum(1)
  end
  return o.predict_x_start and o.sampling_clamp_l2norm and self:clamped(x0)
      or x0
end

-- Steps of DDPM: all T, from the last.  The noise of step 0 counts nothing,
-- but is drawn.
function prior:ddpm_steps()
  local list = {}
  for t = self.T - 1, 0, -1 do
    local k = self.noise:at(t)
    list[#list + 1] = setmetatable({
      t = t, x0 = k.posterior_mean_coef1, x = k.posterior_mean_coef2,
      draw = t > 0 and math.exp(0.5 * k.posterior_log_variance_clipped) or 0,
      guess = 0, noisy = true }, { __index = k })
  end
  return list
end

-- Steps of DDIM, n - 1 of them; alpha is that of the step before (an
-- off-by-one of the original's, which decoders do not share).
function prior:ddim_steps(n, eta)
  local times, list = schedule.times(-1, self.T, n, n + 1), {}
  local alphas = self.noise.buffer.alphas_cumprod_prev
  for i = 1, #times - 1 do
    local k, to = self.noise:at(times[i]), times[i + 1]
    local s = { t = times[i], x = 0, x0 = 1, guess = 0, draw = 0 }
    if to >= 0 then
      local a, b = alphas[times[i]], alphas[to]
      local c1 = eta * ((1 - a / b) * (1 - b) / (1 - a)) ^ 0.5
      s.x0, s.guess = b ^ 0.5, ((1 - b) - c1 * c1) ^ 0.5
      s.draw, s.noisy = to > 0 and c1 or 0, to > 0
    end
    list[i] = setmetatable(s, { __index = k })
  end
  return list
end

-- Steps that `sample` takes: DDIM where they are fewer than training's.
function prior:steps(n, eta)
  n = n or self.o.sample_timesteps or self.T
  if n > self.T then
    dpc.fail(("DiffusionPrior: %d steps of sampling, more than timesteps, %d")
             :format(n, self.T))
  end
  return n < self.T and self:ddim_steps(n, eta or 1) or self:ddpm_steps()
end

-- One step; noisy: whether noise is drawn.  x [b, k] -> the next, and x0.
function prior:step(x, s, c, past, scale, noisy)
  local x0 = self:start(x, s, c, past, scale)
  local y = x0 * s.x0 + x * s.x
  if s.guess ~= 0 then
    y = y + schedule.noise(s, x, x0) * s.guess
  end
  if noisy then
    y = y + dpc.random("normal", x:dims()) * s.draw
  end
  return y, x0
end

function prior:first(b)
  local x = dpc.random("normal", { b, self.width })
  return self.o.init_image_embed_l2norm and self:clamped(x) or x
end

-- x [b, k] at the end -> embeddings.
function prior:finish(x)
  if self.o.sampling_final_clamp_l2norm and self.o.predict_x_start then
    x = self:clamped(x)
  end
  return x / self.scale
end

function prior:guidance_check(scale, ddim)
  if scale and scale ~= 1 and not ddim
      and not (self.text_drop > 0 and self.image_drop > 0) then
    dpc.fail("DiffusionPrior: cond_scale is not 1, but the network was not "
             .. "trained with conditions dropped (cond_drop_prob)")
  end
end

-- All steps, one after the other: [b, k].  o: cond_scale, timesteps, eta.
function prior:sample(c, o)
  local steps = self:steps(o.timesteps, o.eta)
  self:guidance_check(o.cond_scale, #steps < self.T)
  local x, past = self:first(c.text_embed:dim(0)), nil
  for _, s in ipairs(steps) do
    x, past = self:step(x, s, c, past, o.cond_scale, s.noisy)
  end
  return self:finish(x)
end

-- Of r samples for each text, the nearest to it; x [b r, k], text_embed
-- [b r, k] repeated likewise -> [b, k].
function prior.nearest(x, text_embed, r)
  local apart = { r = r }
  local cosine = (nn.l2_norm(x) * nn.l2_norm(text_embed))
      :move("(br)k->br", apart)                            -- [b, r]
  local top = nn.like(cosine:max("br->b"), "b->br", cosine)
  local best = cosine:eq(top)                              -- [b, r]
  return x:move("(br)k->brk", apart):dot(best, "brk,br->bk")
      / nn.like(best:move("br->b"), "b->bk", x:slice{ size = cosine:dim(0) })
end

return { new = new, declared = declared, nearest = prior.nearest }
