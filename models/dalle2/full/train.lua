-- train.lua -- the trainers of DALLE2-pytorch: AdamW on two groups, warm-up,
-- clipping, averages as ema-pytorch has kept them since 0.3.
--
-- A U-Net of a cascade is trained by itself: the others are no part of the
-- graph.

local options = require "dalle2.full.options"
local optim = require "optim"

local train = {}

-- amp is taken, and changes nothing: --dtype says what is computed in bf16.
local shared = {
  use_ema = true, amp = options.any, group_wd_params = true,
  ema_beta = 0.9999, ema_update_after_step = options.count(100),
  ema_update_every = 10, ema_inv_gamma = 1.0, ema_power = 2 / 3,
  ema_min_value = 0.0,
}

local decoder_options = options.join(shared, {
  lr = options.each(1e-4), wd = options.each(1e-2), eps = options.each(1e-8),
  warmup_steps = options.each(dpc.null, "count"),
  cosine_decay_max_steps = options.each(dpc.null, "size"),
  max_grad_norm = options.maybe("number"),
})

-- VQGanVAETrainer's: no decay, no clipping.
local vqgan_options = options.join(shared, {
  lr = 3e-4, wd = 0.0, eps = 1e-8, warmup_steps = options.maybe("count"),
  cosine_decay_max_steps = options.maybe("size"),
  max_grad_norm = options.maybe("number"),
  ema_update_after_step = options.count(500),
})

local prior_options = options.join(shared, {
  lr = 3e-4, wd = 1e-2, eps = 1e-6, warmup_steps = options.maybe("count"),
  cosine_decay_max_steps = options.maybe("size"),
  max_grad_norm = options.maybe("number"),
})

-- DecoderTrainer's keywords; lr, wd, eps and warm-up may be lists of one for
-- each U-Net.  Its max_grad_norm is 0.5 unless given.
function train.decoder(given, origin)
  local o = options.take(given, "DecoderTrainer", decoder_options, origin)
  if given.max_grad_norm == nil then
    o.max_grad_norm = 0.5
  end
  for _, lr in ipairs(type(o.lr) == "table" and o.lr or { o.lr }) do
    if lr > 1e-2 then
      options.fail(o, "lr", "lr is %g, more than 0.01; 1e-4 to 5e-4 are usual",
                   lr)
    end
  end
  return o
end

-- DiffusionPriorTrainer's keywords.
function train.prior(given, origin)
  return options.take(given, "DiffusionPriorTrainer", prior_options, origin)
end

function train.vqgan(given)
  return options.take(given, "VQGanVAETrainer", vqgan_options)
end

-- option `key` of U-Net number i; nil for null.
local function of(o, key, i)
  local value = o[key]
  if type(value) == "table" then
    value = value[i or 1]
  end
  if value == dpc.null then
    return nil
  end
  return value
end

-- Learning rate of this step, f32 []: the first one is warmed up already.
local function rate(o, i, step)
  local lr = dpc.scalar("lr", of(o, "lr", i), "largest learning rate")
  local warmup = of(o, "warmup_steps", i)
  local cosine = of(o, "cosine_decay_max_steps", i)
  if warmup then
    local period = dpc.scalar("warmup", warmup,
                              "steps until the largest learning rate")
    lr = lr * ((step + 1) / period):minimum(1)
  end
  if cosine then
    lr = lr * ((step * (math.pi / cosine)):cos() + 1) * 0.5
  end
  return lr
end

-- Weight of the past in averages: none, they are copies, up to
-- update_after_step; then growing to beta.  Between updates they stay.
local function average(o)
  return function(step, beta)
    local age = (step - o.ema_update_after_step):maximum(0)
    local grown = 1 - (age / o.ema_inv_gamma + 1)
        :pow(dpc.const(-o.ema_power, {}))
    local past = age:step() * grown:maximum(o.ema_min_value):minimum(beta)
    local every = o.ema_update_every
    if every == 1 then
      return past
    end
    local due = (step / every):floor():eq(step / every)
    return due:where(past, 1)
  end
end

-- Averages of states, too: each of list is { state, what it becomes }.
function train.follow(o, list)
  local step = dpc.scalar("step", 0, "steps done")         -- []
  local past = average(o)(step, dpc.scalar("ema", o.ema_beta,
                                           "weight of the past in averages"))
  for _, move in ipairs(list) do
    local s = move[1]
    local e = dpc.state("ema." .. s:name(), s:dims(), { init = s })
    dpc.set(e, e * past + move[2] * (1 - past))
  end
end

-- Parameters that the loss does not reach have averages that stay.
local function still_averages(loss, params)
  local seen = {}
  for _, p in ipairs(dpc.reached(loss, params)) do
    seen[p:name()] = true
  end
  for _, p in ipairs(params) do
    if not seen[p:name()] then
      dpc.state("ema." .. p:name(), p:dims(), { init = p })
    end
  end
end

-- One step on loss f32 [] of U-Net number i (or of the prior); o from
-- `decoder` or `prior`; params: those to train (all).  Returns metrics.
function train.step(loss, o, i, params)
  local step = dpc.scalar("step", 0, "steps done")         -- []
  params = params or dpc.params()
  if o.use_ema then
    still_averages(loss, params)
  end
  return optim.step(loss, {
    params = params,
    rate = rate(o, i, step), decay = of(o, "wd", i), eps = of(o, "eps", i),
    clip = o.max_grad_norm or 1e30, ema = o.use_ema and o.ema_beta,
    average = average(o),
    decays = not o.group_wd_params and function() return true end or nil })
end

return train
