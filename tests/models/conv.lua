-- Convolutions with stride, a group norm, random noise of the step.
local nn = require "nn"
local optim = require "optim"

local batch = dpc.option("batch", 16, "pictures a step")
local side = dpc.option("side", 12, "of a picture")

local function net(x)
  local h = nn.conv2d("in", x, 8, 3)                       -- [b, 8, h, w]
  h = nn.silu(nn.group_norm("norm", h, 2))
  h = nn.conv2d("down", h, 16, 3, { stride = 2 }):relu()   -- [b, 16, h/2, w/2]
  return nn.linear("out", nn.mean(h, "bchw->bc"), 10)      -- [b, 10]
end

local function train()
  local image = dpc.input("image", { batch, side, side }, "u8")
  local label = dpc.input("label", { batch }, "u8")
  local x = (image:cast("f32") * (1 / 255) - 0.5):move("bhw->bchw", { c = 1 })
  x = x + dpc.random("normal", x:dims()) * 0.05
  local loss = nn.cross_entropy(net(x), nn.one_hot(label, 10))
  local out = optim.step(loss, { lr = 2e-3, steps = 300, warmup = 10 })
  out.loss = loss
  return out
end

return { name = "conv", entries = { train = train } }
