-- A linear map of coloured pictures from a folder.
local nn = require "nn"
local optim = require "optim"

local function train()
  local image = dpc.input("image", { 4, 8, 8, 3 }, "u8")
  local label = dpc.input("label", { 4 }, "i32")
  local x = image:cast("f32") * (1 / 255) - 0.5            -- [b, h, w, c]
  local logit = nn.linear("out", x, 2, { over = 3 })       -- [b, 2]
  local loss = nn.cross_entropy(logit, nn.one_hot(label, 2))
  local out = optim.step(loss, { lr = 1e-3, steps = 100 })
  out.loss = loss
  return out
end

return { name = "pictures", entries = { train = train } }
