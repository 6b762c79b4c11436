-- dpc check
local function net()
  local x = dpc.input("x", { 2, 5, 4 })
  local mask = dpc.mask(dpc.input("mask", { 2, 5 }))
  local logit = x:dot(x, "bnk,bmk->bnm")
  local row = mask:move("bm->bnm", { n = 5 })
  return { y = (logit * row):exp() }
end
return { entries = { net = net } }
