-- parts.lua -- parts for the tests of dpc eval --cases.
local nn = require "nn"

local function check(options, known)
  for key in pairs(options) do
    if known[key] == nil then
      dpc.fail('no option "' .. key .. '"')
    end
  end
  return function(key)
    if options[key] == nil then return known[key] end
    return options[key]
  end
end

local parts = {}

-- y = gelu(x w^T + b) g
function parts.layer(options, input, call)
  local o = check(options, { dim = 4, out = 3, bias = true })
  local x = input.x                                        -- [b, dim]
  return dpc.scope("net", function()
    local w = nn.weight("weight", { o "out", o "dim" })
    local y = x:dot(w, "bk,mk->bm")                        -- [b, out]
    if o "bias" then
      y = y + nn.weight("bias", { o "out" })
    end
    return { out = nn.gelu(y) * nn.weight("g", { o "out" })
                 * (call.scale or 1) }
  end)
end

-- Every kind of input as it is.
function parts.echo(_, input)
  return input
end

-- x again, of which f32 loses twelve bits on the way.
function parts.cancels(_, input)
  return { out = (input.x + 4096) - 4096 }
end

-- x plus two normal draws of its shape, counted in a state.
function parts.walk(_, input)
  local x = dpc.state("walk.at", input.x:dims(), { init = 1 })
  local y = x + dpc.random("normal", x:dims())
      - dpc.random("normal", x:dims())
  dpc.set(x, y)
  return { out = y, loss = nn.mean(y * y) }
end

-- One step of gradient descent.
function parts.descent(_, input)
  local w = nn.weight("w", { 2, 3 })
  local loss = nn.mse(w, input.x)
  local g = dpc.grad(loss, { w })[1]
  dpc.set(w, w - g * dpc.scalar("lr", 0.5))
  return { loss = loss, step = dpc.scalar("step", 0) }
end

return { parts = parts }
