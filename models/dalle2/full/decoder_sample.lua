-- decoder_sample.lua -- samplers of a Decoder: DDPM and DDIM, with
-- classifier-free guidance, self-conditioning, dynamic thresholds, and
-- inpainting by going back and forth (RePaint, Lugmayr et al. 2022).
--
-- A stage's sampler is a list of steps, each a table of numbers.  `step` takes
-- one of them, or, where an entry is repeated by the binary, the same fields
-- as values.

local nn = require "nn"
local along = require "along"
local picture = require "dalle2.full.picture"
local schedule = require "dalle2.full.schedule"
local class = require("dalle2.full.decoder").class

-- Back from step `to` to the noisier `from`: x a + noise b.
local function renoised(k, next_)
  local a, s = k.sqrt_alphas_cumprod, k.sqrt_one_minus_alphas_cumprod
  local an, sn = next_.sqrt_alphas_cumprod,
      next_.sqrt_one_minus_alphas_cumprod
  return an / a, (sn * a - s * an) / a
end

-- `times` steps in place of one: each but the last goes back again.
local function repeated(list, s, times, k_to, k_from, last)
  for r = times, 1, -1 do
    local back = r > 1 and not last
    local a, b = 1, 0
    if back then
      a, b = renoised(k_to, k_from)
    end
    list[#list + 1] = setmetatable({ back_x = a, back_noise = b, back = back },
                                   { __index = s })
  end
end

local function ddpm_steps(s, times)
  local list = {}
  for t = s.schedule.T - 1, 0, -1 do
    local k = s.schedule:at(t)
    local step = setmetatable({
      t = t, ddpm = 1, x0 = k.posterior_mean_coef1,
      x = k.posterior_mean_coef2, guess = 0, moves = t > 0 and 1 or 0,
      noisy = true }, { __index = k })
    repeated(list, step, times, t > 0 and s.schedule:at(t - 1), k, t == 0)
  end
  return list
end

-- Times go from the last to 0; noise is drawn but for the last.
local function ddim_steps(s, n, eta, times)
  local all, list = schedule.times(0, s.schedule.T, n + 1, n + 2), {}
  local alphas = s.schedule.buffer.alphas_cumprod
  for i = 1, #all - 1 do
    local t, to = all[i], all[i + 1]
    if t > to then
      local k, a, b = s.schedule:at(t), alphas[t], alphas[to]
      local c1 = eta * ((1 - a / b) * (1 - b) / (1 - a)) ^ 0.5
      local step = setmetatable({
        t = t, ddpm = 0, x = 0, x0 = b ^ 0.5, draw = to > 0 and c1 or 0,
        guess = ((1 - b) - c1 * c1) ^ 0.5, noisy = to > 0 },
        { __index = k })
      repeated(list, step, times, s.schedule:at(to), k, to == 0)
    end
  end
  return list
end

-- Steps of stage s: DDIM where they are fewer than training's.  resample: how
-- often each is done (1).
function class:steps(s, resample)
  local n = s.steps or s.schedule.T
  if n < s.schedule.T then
    return ddim_steps(s, n, self.o.ddim_sampling_eta, resample or 1)
  end
  return ddpm_steps(s, resample or 1)
end

-- x0 [b, c, h, w] into -1 .. 1: cut, or, dynamic, divided by the magnitude
-- below which a share of its pixels lies, if that is above 1 (Saharia et al.
-- 2022, 2.3).
function class:threshold(x)
  if not self.o.use_dynamic_thres then
    return nn.clamp(x, -1, 1)
  end
  local flat = x:abs():move("bchw->b(chw)")
  local s = along.quantile(flat, self.o.dynamic_thres_percentile, 1)
  s = nn.rows(s:maximum(1), x)                             -- like x
  return x:maximum(-s):minimum(s) / s
end

-- Known pixels o.image where o.mask [b, 1, h, w] is 1, as noisy as x is.
local function known(x, k, o)
  if not o.image then
    return x
  end
  local noise = dpc.random("normal", x:dims())
  return o.mask:where(schedule.noised(k, o.image, noise), x)
end

-- One step from x [b, c, h, w]: the next x, and x0.
--   told: the U-Net's conditions     past: x0 of the step before, or nil
--   o: scale (of guidance), image, mask (inpainting)
--   noisy, back: whether noise is drawn, whether it goes back
function class:step(s, x, k, told, past, o, noisy, back)
  x = known(x, k, o)
  local b = x:dim(0)
  local t = type(k.t) == "number" and dpc.const(k.t, { b })
      or k.t:move("->b", { b = b })
  local c = setmetatable({ self_cond = s.unet.self_cond and past or nil },
                         { __index = told })
  local pred, share = class.parts_of(s, s.unet:guided(x, t, c, o.scale))
  local x0 = schedule.start(k, x, pred, s.predict)
  if not s.vae then
    x0 = self:threshold(x0)
  end
  local y = x0 * k.x0
  if o.ddpm then
    local log = s.learned and self:log_variance(k, share)
        or k.posterior_log_variance_clipped
    local spread = type(log) == "number" and math.exp(0.5 * log)
        or (log * 0.5):exp()
    y = y + x * k.x + dpc.random("normal", x:dims()) * spread * k.moves
  else
    y = y + schedule.noise(k, x, x0) * k.guess
    if noisy then
      y = y + dpc.random("normal", x:dims()) * k.draw
    end
  end
  if back then
    y = y * k.back_x + dpc.random("normal", x:dims()) * k.back_noise
  end
  return y, x0
end

-- The step of noise that small pictures are given while sampling.
function class:lowres_level()
  return math.floor(self.o.lowres_noise_sample_level * 1000)
end

-- The small picture of stage s from the one before, as training has it, and
-- its level of noise.
function class:small(s, image)
  if not s.lowres then
    return nil, nil
  end
  local x, level = picture.fitted(image, s.size, self.range), nil
  if s.lowres.use_noise then
    level = dpc.const(self:lowres_level(), { x:dim(0) }):cast("i32")
    x = s.lowres:noised(x, level)
  end
  return s.vae and s.vae:encode(x) or self.normalize(x), level
end

-- What is known of the picture, at the size of stage s.
local function inpainted(self, s, o, n)
  if not o.inpaint_image then
    return {}
  end
  local mask = o.inpaint_mask:move("bhw->bchw", { c = 1 })
  return {
    image = picture.nearest(self.normalize(o.inpaint_image), n),
    mask = picture.nearest(mask, n),
  }
end

-- Shape of what stage s diffuses.
function class:shape(s, b)
  local n = s.vae and s.vae:encoded_size(s.size) or s.size
  return { b, s.unet.o.channels, n, n }
end

-- All steps of stage s, one after the other -> picture in the range of
-- pictures.  image: of the stage before.
function class:sample_stage(s, b, image, c, o)
  local small, level = self:small(s, image)
  local shape = self:shape(s, b)
  local more = inpainted(self, s, o, shape[3])
  local times = o.inpaint_image and (o.inpaint_resample_times or 5) or 1
  local steps = self:steps(s, times)
  more.scale, more.ddpm = o.cond_scale, steps[1].ddpm == 1
  self:guidance_check(s, more)
  local told = { image_embed = c.image_embed, lowres_cond_img = small,
                 text_encodings = c.text_encodings,
                 lowres_noise_level = level }
  local x, past = dpc.random("normal", shape), nil
  for _, k in ipairs(steps) do
    x, past = self:step(s, x, k, told, past, more, k.noisy, k.back)
  end
  if more.image then
    x = more.mask:where(more.image, x)
  end
  x = self.unnormalize(x)
  return s.vae and s.vae:decode(x) or x
end

function class:guidance_check(s, o)
  if o.scale and o.scale ~= 1 and o.ddpm
      and not (self.image_drop > 0 or self.text_drop > 0) then
    dpc.fail("Decoder: cond_scale is not 1, but the network was not trained "
             .. "with conditions dropped (image_cond_drop_prob)")
  end
end

-- The cascade: b pictures of the last stage.  c: image_embed, text_encodings;
-- o: cond_scale (a number, or a list), image (of the stage before `start_at`),
-- start_at_unet_number, stop_at_unet_number, inpaint_image, inpaint_mask,
-- inpaint_resample_times.
function class:sample(b, c, o)
  self:condition_check(c)
  local first = o.start_at_unet_number or 1
  local x = o.image
  if first > 1 and not x then
    dpc.fail(("Decoder: sampling begins at U-Net %d, but there is no image")
             :format(first))
  elseif first > 1 then
    x = picture.nearest(x, self.stage[first - 1].size)
  end
  if (o.inpaint_image == nil) ~= (o.inpaint_mask == nil) then
    dpc.fail("Decoder: inpaint_image and inpaint_mask go together")
  end
  for i = first, o.stop_at_unet_number or #self.stage do
    local scale = o.cond_scale
    local own = setmetatable({
      cond_scale = type(scale) == "table" and scale[i] or scale },
      { __index = o })
    x = self:sample_stage(self.stage[i], b, x, c, own)
  end
  return x
end

return class
