-- diffusion.lua -- noise schedules, objectives, DDPM and DDIM steps, guidance.
--
-- Time is continuous: t = 0 is data, t = 1 is noise, and
--     x_t = a(t) x0 + s(t) noise,      a^2 + s^2 = 1      (Ho et al. 2020, 4).
-- So training needs no table, and a sampler may take any number of steps.
-- Networks predict x0 unless told otherwise: for small models that is the
-- difference between pictures and coloured noise.

local nn = require "nn"

local diffusion = {}

---- schedules: t f32 [...] -> a, s f32 [...] ----

local schedules = {}

-- abar(t) = cos^2((t + 0.008) / 1.008 pi / 2) / abar(0) (Nichol and Dhariwal
-- 2021, eq. 17).
function schedules.cosine(t)
  local at0 = math.cos(0.008 / 1.008 * math.pi / 2)
  local a = ((t + 0.008) * (math.pi / 2 / 1.008)):cos() * (1 / at0)
  a = a:maximum(0):minimum(1)
  return a, (1 - a * a):maximum(0):sqrt()
end

-- beta linear in t, from 0.1 to 20: abar(t) = exp(-0.1 t - 19.9 t^2 / 2)
-- (Song et al. 2021, appendix C; the limit of Ho et al. 2020, 4).
function schedules.linear(t)
  local a2 = (t * -0.1 - t * t * 9.95):exp()
  return a2:sqrt(), (1 - a2):maximum(0):sqrt()
end

---- objectives ----

-- What the network should say: x0 itself, the noise, or v = a noise - s x0
-- (Salimans and Ho 2022, appendix D).  All like x0; a, s repeated.
local function target(predict, x0, noise, a, s)
  if predict == "x0" then
    return x0
  end
  return predict == "noise" and noise or a * noise - s * x0
end

-- x0 from what the network said about x.
local function clean(predict, out, x, a, s)
  if predict == "x0" then
    return out
  end
  if predict == "noise" then
    return (x - s * out) / a:maximum(1e-3)
  end
  return a * x - s * out
end

---- a diffusion process ----

local process = {}
process.__index = process

-- schedule: "cosine" or "linear"; predict: "x0", "noise", "v"; clip: bound of
-- a predicted x0 while sampling, nil: none.
function diffusion.new(o)
  o = o or {}
  local self = setmetatable({ predict = o.predict or "x0", clip = o.clip },
                            process)
  self.schedule = schedules[o.schedule or "cosine"]
      or dpc.fail(("diffusion: schedule \"%s\" is neither \"cosine\" nor "
                   .. "\"linear\""):format(o.schedule))
  if not ({ x0 = 1, noise = 1, v = 1 })[self.predict] then
    dpc.fail(("diffusion: predict \"%s\" is none of \"x0\", \"noise\", \"v\"")
             :format(self.predict))
  end
  return self
end

-- x0 [b, ...] with fresh noise at times t [b] -> x_t, noise, a, s, like x0.
function process:noised(x0, t)
  local a, s = self.schedule(t)                            -- [b]
  a, s = nn.rows(a, x0), nn.rows(s, x0)
  local noise = dpc.random("normal", x0:dims())
  return a * x0 + s * noise, noise, a, s
end

-- Squared error of the network at random times, f32 [], and its idea of x0;
-- net: function(x_t [b, ...], t [b]) -> like x0.
function process:loss(x0, net)
  local t = dpc.random("uniform", { x0:dim(0) }) * 0.998 + 0.001 -- [b]
  local x, noise, a, s = self:noised(x0, t)
  local out = net(x, t)
  return nn.mse(out, target(self.predict, x0, noise, a, s)),
      clean(self.predict, out, x, a, s)
end

-- One step of a sampler from x at time t to time `to`, both f32 [], t > to:
-- DDIM for eta = 0 (Song et al. 2020, eq. 12), DDPM's posterior for eta = 1.
-- net: function(x, t [b]) -> like x.  eta: number or f32 [], nil: 0.
function process:step(x, t, to, net, eta)
  local a, s = self.schedule(t)                            -- []
  local a1, s1 = self.schedule(to)                         -- []
  local out = net(x, t:move("->b", { b = x:dim(0) }))      -- like x
  local x0 = clean(self.predict, out, x, nn.rows(a, x), nn.rows(s, x))
  if self.clip then
    x0 = x0:maximum(-self.clip):minimum(self.clip)
  end
  local noise = (x - x0 * a) / s                           -- like x
  if not eta then
    return x0 * a1 + noise * s1
  end
  local ratio = a / a1:maximum(1e-6)                       -- []
  local sigma = s1 / s * (1 - ratio * ratio):maximum(0):sqrt() * eta
  local kept = (s1 * s1 - sigma * sigma):maximum(0):sqrt() -- []
  return x0 * a1 + noise * kept
      + dpc.random("normal", x:dims()) * sigma
end

-- Times of step i (from 0) of n, both f32 []: 1 - i / n and 1 - (i + 1) / n.
function diffusion.times(i, n)
  return 1 - i / n, (1 - (i + 1) / n):maximum(0)
end

-- Classifier-free guidance (Ho and Salimans 2022): away from what the network
-- says without condition.  weight f32 [] or number; 1: no guidance.
function diffusion.guided(with, without, weight)
  return without + (with - without) * weight
end

return diffusion
