-- dpc check
return { entries = { train = function()
  local q = dpc.input("q", { 2, 3, 5, 4 })
  local k, v = dpc.input("k", { 2, 3, 7, 4 }), dpc.input("v", { 2, 3, 7, 4 })
  local y = q:attn(k, v, dpc.const(1, { 7 }), "bhqd,bhsd,bhse,s->bhqe")
  local g = dpc.grad((y * y):move("bhqe->"), { q })[1]
  return { loss = dpc.grad((g * g):move("bhqd->"), { q })[1]:move("bhqd->") }
end } }
