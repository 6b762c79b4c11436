-- lowres.lua -- LowresConditioner: the small picture that a later stage of a
-- cascade is given, made worse on purpose, so that the stage forgives what
-- the one before gets wrong (Ho et al. 2021, Cascaded Diffusion Models).

local nn = require "nn"
local layers = require "dalle2.full.layers"
local picture = require "dalle2.full.picture"
local schedule = require "dalle2.full.schedule"

local lowres = {}
lowres.__index = lowres

-- o: downsample_first, use_blur, use_noise, blur_prob, blur_sigma,
-- blur_kernel_size (each a number or { low, high }), range { low, high },
-- normalize, unnormalize: functions.
local function new(o)
  local self = setmetatable({ o = o, use_noise = o.use_noise }, lowres)
  if o.use_noise then
    self.schedule = schedule.new("linear", 1000, { gamma = 0, k = 1 })
  end
  return self
end

-- A number of { low, high }, drawn: f32 [].
local function between(range)
  return dpc.random("uniform", {}) * (range[2] - range[1]) + range[1]
end

-- An odd number of { low, high }: f32 [], and the largest.
local function odd(range)
  local low = range[1] + (range[1] + 1) % 2
  local high = range[2] - (range[2] + 1) % 2
  return nn.random_int((high - low) // 2 + 1, {}) * 2 + low, high
end

-- x, blurred with probability blur_prob; one coin f32 [] for all samples.
-- coin: nil: drawn.
local function blurred(o, x, coin)
  local sigma, size, most = o.blur_sigma, o.blur_kernel_size, nil
  if type(sigma) == "table" then
    sigma = between(sigma)
  end
  if type(size) == "table" then
    size, most = odd(size)
  end
  if o.blur_prob == 0 then
    return x
  end
  local y = picture.blur(x, sigma, size, most or size)
  if o.blur_prob == 1 and not coin then
    return y
  end
  coin = coin or dpc.random("uniform", {}):lt(o.blur_prob) -- []
  return coin:where(y, x)
end

-- x [b, c, h, w] with noise of `level` i32 [b], in the range of pictures.
function lowres:noised(x, level)
  x = self.o.normalize(x)
  local k = self.schedule:at(level, x)
  return self.o.unnormalize(
      schedule.noised(k, x, dpc.random("normal", x:dims())))
end

-- x [b, c, h, w] -> [b, c, to, to] by way of `from` pixels; and the level of
-- noise i32 [b], or nil.  more: coin (1: blur), level.
function lowres:forward(x, from, to, more)
  local o = self.o
  if o.downsample_first then
    x = picture.fitted(x, from, o.range)
  end
  if o.use_blur then
    x = blurred(o, x, more.coin)
  end
  x = picture.fitted(x, to, o.range)
  if not o.use_noise then
    return x, nil
  end
  local level = more.level and layers.whole(more.level)
      or self.schedule:draw(x:dim(0))
  return self:noised(x, level), level
end

return { new = new }
