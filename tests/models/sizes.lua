-- sizes.lua -- one step, compiled for pictures of two heights.
local nn = require "nn"
local optim = require "optim"

local function loss_of(rows)
  local x = dpc.input("x", { 4, rows, 6 }, "u8"):cast("f32") / 255
  return nn.mean(nn.linear("a", x, 5):relu())
end

local function train(rows)
  return function()
    local loss = loss_of(rows)
    local out = optim.step(loss, { steps = 40 })
    out.loss, out.rows = loss, dpc.const(rows, {})
    return out
  end
end

local function eval(rows)
  return function()
    return { loss = loss_of(rows), rows = dpc.const(rows, {}) }
  end
end

return { entries = {
  ["train-4"] = train(4), ["train-6"] = train(6),
  ["eval-4"] = eval(4), ["eval-6"] = eval(6),
} }
