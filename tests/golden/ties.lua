-- dpc eval %
-- Ties share the gradient of a maximum: eight equal elements get an eighth
-- each, so the gradient of the sum of both rows' maxima is 2 in all.
return { name = "ties", entries = { train = function()
  local x = dpc.param("x", { 2, 4 })
  local y = (x * 0):max("ab->a")
  local g = dpc.grad(y:move("a->"), { x })[1]
  local z = x * 0 + 1
  local both = dpc.grad(z:max("ab->"), { z })[1]
  return { zero = g:move("ab->"), one = both:move("ab->"),
           each = both:max("ab->") }
end } }
