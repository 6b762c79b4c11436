-- edit.lua -- trains all of an edit model: Qwen-Image-Edit and its like.
--
-- `--config config.json` of a released transformer; `--init-from DIR` its
-- weights.  What the last block does to the text reaches nothing: those
-- weights have no gradient, and `dpc check` lists them.

local optim = require "optim"
local editing = require "editing"

local function train(bucket)
  local loss = editing.train_loss(editing.batch(bucket))
  local out = optim.step(loss, { rate = editing.rate(1e-5), b2 = 0.999,
                                 ema = false })
  out.loss = loss
  return out
end

local function eval(bucket)
  return { loss = editing.train_loss(editing.batch(bucket)) }
end

local entries, runs = editing.sampler(function(fn) return fn() end)
for name, fn in pairs(editing.entries("train", train)) do
  entries[name] = fn
end
for name, fn in pairs(editing.entries("eval", eval)) do
  entries[name] = fn
end

return {
  name = "edit",
  entries = entries,
  runs = runs,
}
