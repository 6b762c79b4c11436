-- A model beside it (models/dalle2, say) that keeps its gradients too: as states grad.NAME,
-- so that a checkpoint has them beside what they made.
local optim = require "optim"

local step = optim.step
function optim.step(loss, o)
  local params = dpc.reached(loss, o and o.params or dpc.params())
  local out = step(loss, o)
  for i, g in ipairs(dpc.grad(loss, params)) do
    dpc.set(dpc.state("grad." .. params[i]:name(), params[i]:dims()), g)
  end
  return out
end

return require(dpc.option("model", "clip", "which one"))
