-- A transformer block over the rows of a picture.
local nn = require "nn"
local optim = require "optim"

local batch = dpc.option("batch", 16, "pictures a step")
local side = dpc.option("side", 12, "of a picture")

local scores = dpc.option("scores", 2 ^ 26, "that attention may store")

local function net(x)
  local h = nn.linear("in", x, 32)                         -- [b, n, 32]
  h = nn.transformer("block", h, 4, { causal = true, scores = scores })
  return nn.linear("out", nn.mean(h, "bnk->bk"), 10)       -- [b, 10]
end

local function train()
  local image = dpc.input("image", { batch, side, side }, "u8")
  local label = dpc.input("label", { batch }, "u8")
  local x = image:cast("f32") * (1 / 255) - 0.5            -- [b, n, side]
  local loss = nn.cross_entropy(net(x), nn.one_hot(label, 10))
  local out = optim.step(loss, { lr = 2e-3, steps = 300, warmup = 10 })
  out.loss = loss
  return out
end

return { name = "attn", entries = { train = train } }
