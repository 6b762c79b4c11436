-- 77 tokens and 24 heads: sizes that few numbers of ranks divide.
local nn = require "nn"
local optim = require "optim"

local batch = dpc.option("batch", 3, "sequences a step")
local scores = dpc.option("scores", 2 ^ 26, "that attention may store")

local function net(x)
  local h = nn.linear("in", x, 48)                         -- [b, 77, 48]
  h = nn.transformer("block", h, 24, { scores = scores })
  return nn.linear("out", nn.mean(h, "bnk->bk"), 10)       -- [b, 10]
end

local function train()
  local image = dpc.input("image", { batch, 77, 8 }, "u8")
  local label = dpc.input("label", { batch }, "u8")
  local logit = net(image:cast("f32") * (1 / 255) - 0.5)
  local loss = nn.cross_entropy(logit, nn.one_hot(label, 10))
  local out = optim.step(loss, { lr = 2e-3, steps = 300, warmup = 10 })
  out.loss, out.logit = loss, logit
  return out
end

return { name = "heads", entries = { train = train } }
