-- dpc check
return { entries = { eval = function()
  local table = dpc.param("table", { 4, 3 })
  local ids = dpc.input("ids", { 5 })
  return { y = table:take(ids) }
end } }
