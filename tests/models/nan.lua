-- A perceptron whose loss is not a number at step --bad-step.
local nn = require "nn"
local optim = require "optim"

local image = dpc.option("side", 12, "of a picture")

local function train()
  local x = dpc.input("image", { 16, image, image }, "u8"):cast("f32") / 255
  local label = nn.one_hot(dpc.input("label", { 16 }, "u8"), 10)
  local loss = nn.cross_entropy(nn.linear("out", x, 10, { over = 2 }), label)
  local hurt = dpc.scalar("step", 0, "steps done")
      :eq(dpc.scalar("bad_step", -1, "the step that fails"))
  local trap = (0.5 - hurt):log() * hurt                   -- 0, or NaN
  loss = loss * (1 + trap)
  local out = optim.step(loss, { lr = 2e-3, steps = 300, warmup = 1 })
  out.loss = loss
  return out
end

return { name = "nan", entries = { train = train } }
