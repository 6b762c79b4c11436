-- schedule.lua -- noise schedules in T discrete steps, as DALLE2-pytorch has
-- them: tables computed in double precision.
--
-- The tables ("buffers") bear the original's names.  `schedule:at(t)` looks
-- them up lazily: `k.betas`.  t is a plain number where a sampler is written
-- out step by step, or a value i32 [] or [b]; what comes back is a number, or
-- f32 [] or, with `like`, f32 of like's shape [b, ...].

local nn = require "nn"

local schedule = {}
schedule.__index = schedule

-- x rounded to the 24 bits of an f32 (Veltkamp's splitting).
local function single(x)
  local c = x * (2 ^ 29 + 1)
  return c - (c - x)
end

---- betas ----

local kinds = {}

-- n numbers from a to b.
local function line(a, b, n)
  local t = {}
  for i = 0, n - 1 do
    t[i] = n == 1 and a or a + (b - a) * i / (n - 1)
  end
  return t
end

local function mapped(t, n, fn)
  local y = {}
  for i = 0, n - 1 do
    y[i] = fn(t[i])
  end
  return y
end

-- Ends of beta for T steps: as far apart as with 1000.
local function ends(T)
  return 1000 / T * 1e-4, 1000 / T * 0.02
end

-- abar(i) = cos^2((i / T + 0.008) / 1.008 pi / 2) (Nichol and Dhariwal 2021).
function kinds.cosine(T)
  local function abar(i)
    return math.cos((i / T + 0.008) / 1.008 * math.pi * 0.5) ^ 2
  end
  local betas = {}
  for i = 0, T - 1 do
    betas[i] = math.min(math.max(1 - abar(i + 1) / abar(i), 0), 0.999)
  end
  return betas
end

function kinds.linear(T)
  local a, b = ends(T)
  return line(a, b, T)
end

function kinds.quadratic(T)
  local a, b = ends(T)
  return mapped(line(a ^ 0.5, b ^ 0.5, T), T, function(x) return x * x end)
end

function kinds.sigmoid(T)
  local a, b = ends(T)
  return mapped(line(-6, 6, T), T, function(x)
    return (b - a) / (1 + math.exp(-x)) + a
  end)
end

-- Its last beta is one: no signal is left, and nothing can be divided by it.
function kinds.jsd(T)
  return mapped(line(T, 1, T), T, function(x) return 1 / x end)
end

---- tables ----

-- From alpha-bar, the one before, and beta of a step: every buffer.
local function row(a, before, beta, p2)
  local rest = 1 - a
  local variance = beta * (1 - before) / rest
  return {
    betas = beta, alphas_cumprod = a, alphas_cumprod_prev = before,
    sqrt_alphas_cumprod = a ^ 0.5, sqrt_one_minus_alphas_cumprod = rest ^ 0.5,
    log_one_minus_alphas_cumprod = math.log(rest),
    sqrt_recip_alphas_cumprod = (1 / a) ^ 0.5,
    sqrt_recipm1_alphas_cumprod = (1 / a - 1) ^ 0.5,
    posterior_variance = variance,
    posterior_log_variance_clipped = math.log(math.max(variance, 1e-20)),
    posterior_mean_coef1 = beta * before ^ 0.5 / rest,
    posterior_mean_coef2 = (1 - before) * (1 - beta) ^ 0.5 / rest,
    p2_loss_weight = (p2.k + a / rest) ^ -p2.gamma,
  }
end

-- kind: "cosine", ...; T steps; p2 { gamma, k }: weights of the loss (Choi et
-- al. 2022).  fail(text): where the kind or T is wrong.
function schedule.new(kind, T, p2, fail)
  local make = kinds[kind]
  if not make then
    fail(("beta schedule \"%s\" is none of cosine, linear, quadratic, "
          .. "sigmoid, jsd"):format(tostring(kind)))
  end
  local self = setmetatable({ kind = kind, T = T, buffer = {},
                              fail = fail or dpc.fail }, schedule)
  local a, betas = 1, make(T)
  for t = 0, T - 1 do
    if betas[t] >= 1 and kind ~= "jsd" then
      fail(("beta schedule \"%s\" over %d steps has beta %.4g >= 1 at step "
            .. "%d: no signal is left, and the loss is NaN; 21 steps are the "
            .. "least"):format(kind, T, betas[t], t))
    end
    local before = a
    a = a * (1 - betas[t])
    for name, x in pairs(row(a, before, betas[t], p2)) do
      self.buffer[name] = self.buffer[name] or {}
      self.buffer[name][t] = x
    end
  end
  self.buffer.log_betas = mapped(self.buffer.betas, T, math.log)
  return self
end

-- Elements 0 .. n - 1 of a list as a value f32 [n, 1], to take rows of.
local function column(name, list, n, fail)
  local t = {}
  for i = 0, n - 1 do
    if list[i] ~= list[i] or math.abs(list[i]) == math.huge then
      fail(("the beta schedule's %s is %s at step %d, and what this objective "
            .. "or sampler divides by"):format(name, list[i], i))
    end
    t[i + 1] = list[i]
  end
  return dpc.const(t, { n, 1 })
end

-- Row t of a column: f32 [] or [b], or of like's shape.
local function row_of(table_, t, like)
  local x = table_:take(t)                                 -- [..., 1]
  x = #t:dims() == 0 and x:move("k->") or x:move("bk->b")
  return like and #t:dims() > 0 and nn.rows(x, like) or x
end

-- What all buffers are at t: fields by their names, made when asked for.
function schedule:at(t, like)
  local plain = type(t) == "number"
  return setmetatable({}, { __index = function(k, name)
    local list = self.buffer[name]
    local x = plain and list and list[t] or nil
    if list and not plain then
      x = row_of(column(name, list, self.T, self.fail), t, like)
    end
    rawset(k, name, x)
    return x
  end })
end

-- A list of steps { t = .., a = .., .. } as a function of the step's number,
-- a plain one or i32 []: the fields of that step.  fail: as schedule.new's.
function schedule.steps(list, fail)
  return function(i)
    if type(i) == "number" then
      return list[i + 1]
    end
    return setmetatable({}, { __index = function(k, name)
      local t = {}
      for j, step in ipairs(list) do
        t[j - 1] = step[name]
      end
      local x = row_of(column(name, t, #list, fail), i)          -- []
      rawset(k, name, x)
      return x
    end })
  end
end

-- Whole times, the last first: n of them from `from` towards `to`, cut to
-- whole numbers as f32 gives them.
function schedule.times(from, to, n, steps)
  local step, list = single((to - from) / (steps - 1)), {}
  for i = 0, n - 1 do
    local x = i < steps // 2 and single(from + single(step * i))
        or single(to - single(step * (steps - 1 - i)))
    table.insert(list, 1, x < 0 and -(-x // 1) or x // 1)
  end
  for i, x in ipairs(list) do
    list[i] = math.tointeger(x)
  end
  return list
end

---- formulas: x0, x, noise of one shape; k from `at` ----

function schedule.noised(k, x0, noise)
  return x0 * k.sqrt_alphas_cumprod + noise * k.sqrt_one_minus_alphas_cumprod
end

function schedule.v(k, x0, noise)
  return noise * k.sqrt_alphas_cumprod - x0 * k.sqrt_one_minus_alphas_cumprod
end

-- x0 from what the network said about x; what: "x0", "noise", "v".
function schedule.start(k, x, said, what)
  if what == "x0" then
    return said
  elseif what == "v" then
    return x * k.sqrt_alphas_cumprod - said * k.sqrt_one_minus_alphas_cumprod
  end
  return x * k.sqrt_recip_alphas_cumprod - said * k.sqrt_recipm1_alphas_cumprod
end

function schedule.noise(k, x, x0)
  return (x * k.sqrt_recip_alphas_cumprod - x0)
      / k.sqrt_recipm1_alphas_cumprod
end

-- Mean of the step before, given x0.
function schedule.posterior(k, x, x0)
  return x0 * k.posterior_mean_coef1 + x * k.posterior_mean_coef2
end

-- Times of a batch: i32 [b], each of 0 .. T - 1 as likely.
function schedule:draw(b)
  return (dpc.random("uniform", { b }) * self.T):floor():cast("i32")
end

---- losses, element by element ----

local losses = {}

function losses.l1(a, b) return (a - b):abs() end

function losses.l2(a, b)
  local d = a - b
  return d * d
end

function losses.huber(a, b)
  local d = (a - b):abs()
  return d:lt(1):where(d * d * 0.5, d - 0.5)
end

function schedule.loss(kind, fail)
  return losses[kind] or fail(("loss_type \"%s\" is none of l1, l2, huber")
                              :format(tostring(kind)))
end

return schedule
