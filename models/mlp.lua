-- mlp.lua -- the smallest whole model: a perceptron that reads photographs.
--
-- Any IDX data set with fields "image" 28 x 28 and "label" will do.

local nn = require "nn"
local optim = require "optim"

local batch = dpc.option("batch", 64, "pictures a step", 1)
local hidden = dpc.option("hidden", 128, "width of the two hidden layers", 1)

-- Pictures f32 [b, 28, 28] in -0.5 .. 0.5, one-hot labels f32 [b, 10]
local function read()
  local image = dpc.input("image", { batch, 28, 28 }, "u8")
  local label = dpc.input("label", { batch }, "u8")
  local x = image:cast("f32") * (1 / 255) - 0.5            -- [b, 28, 28]
  return x, nn.one_hot(label, 10)
end

local function net(x)
  return dpc.scope("mlp", function()
    local h = nn.linear("in", x, hidden, { over = 2 }):relu() -- [b, hidden]
    h = nn.linear("mid", h, hidden):relu()
    return nn.linear("out", h, 10)                         -- [b, 10]
  end)
end

local function train()
  local x, class = read()
  local logit = net(x)
  local loss = nn.cross_entropy(logit, class)
  local out = optim.step(loss, { lr = 2e-3, steps = 900 })
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
