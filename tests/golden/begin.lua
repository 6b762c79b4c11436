-- dpc eval %
-- Params and states of an entry hold what they begin with: a second moment is
-- never below zero, so its root is a number; the number 3 is 3; nothing is 0.
return { name = "begin", entries = { train = function()
  local p = dpc.param("p", { 4 }, { init = 3 })
  local v = dpc.state("v", { 4 })
  local w = dpc.state("w", { 4 }, { init = p * 2 })
  dpc.set(v, v * .5 + 4)
  return { root = (v + 16):sqrt():move("a->"), sum = p:move("a->"),
           twice = w:move("a->") }
end } }
