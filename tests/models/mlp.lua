-- A perceptron of two layers with all that optim.lua does.
local nn = require "nn"
local optim = require "optim"

local batch = dpc.option("batch", 16, "pictures a step")
local side = dpc.option("side", 12, "of a picture")

local function read()
  local image = dpc.input("image", { batch, side, side }, "u8")
  local label = dpc.input("label", { batch }, "u8")
  return image:cast("f32") * (1 / 255) - 0.5, nn.one_hot(label, 10)
end

local function net(x)
  local h = nn.linear("in", x, 64, { over = 2 }):relu()    -- [b, 64]
  return nn.linear("out", h, 10)                           -- [b, 10]
end

local function train()
  local x, class = read()
  local logit = net(x)
  local loss = nn.cross_entropy(logit, class)
  local out = optim.step(loss, { lr = 2e-3, steps = 300, warmup = 10 })
  out.loss, out.accuracy = loss, nn.accuracy(logit, class)
  return out
end

local function eval()
  local x, class = read()
  local logit = nn.averaged(function() return net(x) end)
  return { loss = nn.cross_entropy(logit, class),
           accuracy = nn.accuracy(logit, class) }
end

return { name = "mlp", entries = { train = train, eval = eval } }
