-- Many layers of one width: while one is computed, others are sent.
local nn = require "nn"
local optim = require "optim"

local batch = dpc.option("batch", 32, "pictures a step")
local width = dpc.option("width", 64, "of all layers")
local depth = dpc.option("depth", 6, "layers between the first and the last")

local function train()
  local image = dpc.input("image", { batch, 12, 12 }, "u8")
  local label = dpc.input("label", { batch }, "u8")
  local class = nn.one_hot(label, 10)
  local x = image:cast("f32") * (1 / 255) - 0.5            -- [b, 12, 12]
  local h = nn.linear("in", x, width, { over = 2 }):relu() -- [b, width]
  for i = 1, depth do
    h = nn.linear("mid" .. i, h, width):relu()
  end
  local logit = nn.linear("out", h, 10)                    -- [b, 10]
  local loss = nn.cross_entropy(logit, class)
  local out = optim.step(loss, { lr = 1e-3, steps = 100, warmup = 10 })
  out.loss = loss
  return out
end

return { name = "deep", entries = { train = train } }
