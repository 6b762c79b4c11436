-- pipe.lua -- as many equal layers as one likes, in a row: what pipelines are
-- timed with.  Forward and the gradient of data are a product each, and where
-- weights are trained, not biases alone, so is theirs; something trained before
-- the first layer gives it a gradient of data, too.

local nn = require "nn"

local batch = dpc.option("batch", 16, "rows")
local layers = dpc.option("layers", 8, "equal ones")
local weights = dpc.option("weights", true, "are they trained?")
local width = dpc.option("width", 512, "numbers of a row")

local function train()
  local x = dpc.input("x", { batch, width })                 -- [b, n]
  local first = dpc.param("first", { width })
  local h = x + first:move("n->bn", { b = batch })
  for i = 1, layers do
    dpc.scope("layer" .. i, function()
      local w = dpc.param("w", { width, width }, {
        init = nn.lecun(width), frozen = not weights })
      h = h:dot(w, "bn,nm->bm")
      h = h + dpc.param("b", { width }):move("n->bn", { b = batch })
    end)
  end
  local loss = nn.mse(h, dpc.input("y", { batch, width }))
  local params = dpc.params()
  local grads = dpc.grad(loss, params)
  for i, p in ipairs(params) do
    dpc.set(p, p - grads[i] * 1e-3)
  end
  return { loss = loss }
end

return { name = "pipe", entries = { train = train } }
