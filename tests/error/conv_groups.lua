-- dpc check
return { entries = { train = function()
  local x, w = dpc.input("x", { 2, 6, 8, 8 }), dpc.input("w", { 4, 3, 3, 3 })
  return { y = x:conv(w, { g = 4 }) }
end } }
