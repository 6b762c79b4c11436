-- flow.lua -- flow matching: a straight way from data to noise.
--
--     x_s = (1 - s) x0 + s noise,     the network says noise - x0
-- (Lipman et al. 2022; Liu et al. 2022, rectified flow).  What is left to
-- choose is how often each s is met in training, and which ones a sampler
-- visits.  The two trainers of Qwen-Image that people use choose differently;
-- both are here.

local nn = require "nn"

local flow = {}

---- tokens ----

-- z [b, c, h p, w p] -> [b, h w, c p p]: channel slowest, then row, column.
function flow.packed(z, p)
  return z:move("b c (h p) (w q) -> b (h w) (c p q)", { p = p, q = p })
end

-- Its inverse, for a picture of h x w patches.
function flow.unpacked(x, p, h)
  return x:move("b (h w) (c p q) -> b c (h p) (w q)", { h = h, p = p, q = p })
end

---- schedules: plain numbers ----

-- s moved towards noise, exponentially, by mu (Esser et al. 2024, 5.3.2).
local function shifted(s, mu)
  return math.exp(mu) / (math.exp(mu) + (1 / s - 1))
end

-- The list of s stretched so that the last one is `last`.
local function stretched(list, last)
  local scale = (1 - list[#list]) / (1 - last)
  for i, s in ipairs(list) do
    list[i] = 1 - (1 - s) / scale
  end
  return list
end

-- x > 0 rounded to bf16, to even where it lies between.
function flow.bf16(x)
  local unit = 2.0 ^ (math.floor(math.log(x, 2)) - 7)
  local n = x / unit
  local low = math.floor(n)
  local up = n - low > 0.5 or (n - low == 0.5 and low % 2 == 1)
  return (up and low + 1 or low) * unit
end

-- The n of `list` nearest to x.  The list falls.
local function nearest(list, x)
  local low, high = 1, #list
  while low < high do                  -- first that is not above x
    local mid = (low + high) // 2
    if list[mid] > x then
      low = mid + 1
    else
      high = mid
    end
  end
  local before = math.max(low - 1, 1)
  return list[before] - x <= x - list[low] and before or low
end

-- DiffSynth-Studio's thousand s, and the weight of each in the loss: a bell
-- around s = 0.5, moved down to zero and to mean 1.
function flow.diffsynth()
  local n, mu, list, weight = 1000, 0.8, {}, {}
  for i = 1, n do
    list[i] = shifted(1 - (i - 1) / n, mu)
  end
  stretched(list, 0.02)
  local low, sum = math.huge, 0
  for i, s in ipairs(list) do
    weight[i] = math.exp(-2 * (s - 0.5) ^ 2)
    low = math.min(low, weight[i])
  end
  for i = 1, n do
    weight[i] = weight[i] - low
    sum = sum + weight[i]
  end
  for i = 1, n do
    weight[i] = weight[i] * n / sum
  end
  return list, weight
end

-- Where each of them lands: time 1000 s is kept in bf16, and the nearest s is
-- looked up again.  Numbers into the list.
function flow.landed(list)
  local times, to = {}, {}
  for i, s in ipairs(list) do
    times[i] = 1000 * s
  end
  for i, t in ipairs(times) do
    to[i] = nearest(times, flow.bf16(t))
  end
  return to
end

---- how s is drawn in training ----

-- Each: function(b) -> s, t, weight f32 [b]; t is what the network is told.
flow.samplings = {}

-- u in 0..1 to one of the thousand s = 1, .999, ..., .001.
local function by_density(u, weight)
  local s = 1 - (u * 1000):floor():minimum(999) * 0.001
  return s, s, weight and weight(s) or 1 + 0 * s
end

local function uniform(b) return dpc.random("uniform", { b }) end

function flow.samplings.uniform(b) return by_density(uniform(b)) end

function flow.samplings.logit_normal(b)
  return by_density(dpc.random("normal", { b }):sigmoid())
end

-- More of the ends (Esser et al. 2024, eq. 20, scale 1.29).
function flow.samplings.mode(b)
  local u = uniform(b)
  local c = (u * (math.pi / 2)):cos()
  return by_density(1 - u - (c * c - 1 + u) * 1.29)
end

function flow.samplings.sigma_sqrt(b)
  return by_density(uniform(b), function(s) return 1 / (s * s) end)
end

function flow.samplings.cosmap(b)
  return by_density(uniform(b), function(s)
    return 2 / math.pi / (1 - s * 2 + s * s * 2)
  end)
end

function flow.samplings.diffsynth(b)
  local list, weight = flow.diffsynth()
  local rows = {}
  for i, k in ipairs(flow.landed(list)) do
    rows[i] = { list[k], flow.bf16(1000 * list[i]) / 1000, weight[k] }
  end
  local i = (uniform(b) * #list):floor():minimum(#list - 1):cast("i32")
  local row = dpc.const(rows):take(i)                      -- [b, 3]
  local function column(c)
    return row:slice{ dim = 1, at = c, size = 1 }:move("bc->b")
  end
  return column(0), column(1), column(2)
end

---- the loss ----

-- x0 and noise [b, ...], s [b] -> x_s and what the network should say.
function flow.noised(x0, noise, s)
  local all = nn.rows(s, x0)
  return (1 - all) * x0 + all * noise, noise - x0
end

-- Mean over everything of (out - target)^2, each sample times weight [b].
function flow.loss(out, target, weight)
  local d = out - target
  d = d * d
  return nn.mean(weight and d * nn.rows(weight, d) or d)
end

---- sampling ----

-- s at step `i` of `n`, f32 [] both, for a picture of `tokens` tokens: shifted
-- the more, the larger it is, and stretched to end at 0.02.
function flow.at(i, n, tokens)
  local mu = 0.5 + (tokens - 256) * (0.9 - 0.5) / (8192 - 256)
  local function shift(s)
    return math.exp(mu) / (math.exp(mu) + (1 / s - 1))
  end
  local last = shift(1 / n)                                -- []
  local s = shift((1 - i / n):maximum(1e-6))
  return 1 - (1 - s) * (1 - 0.02) / (1 - last)
end

-- One Euler step of x from step i: net says `out` there.
function flow.step(x, out, i, n, tokens)
  local s = flow.at(i, n, tokens)
  local to = (i + 1):lt(n - 0.5):where(flow.at(i + 1, n, tokens), 0)
  return x + out * (to - s)
end

-- Guidance (Ho and Salimans 2022), each token rescaled to the length of what
-- was said with the condition.
function flow.guided(with, without, scale)
  local y = without + (with - without) * scale             -- [b, n, k]
  local function length(v) return (v * v):move("bnk->bn"):sqrt() end
  return y * nn.like(length(with) / length(y):maximum(1e-12), "bn->bnk", y)
end

return flow
