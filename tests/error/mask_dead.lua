-- dpc check
local nn = require "nn"
local function net()
  local x = dpc.input("x", { 2, 5, 4 })
  local mask = dpc.mask(dpc.input("mask", { 2, 5 }))
  local logit = x:dot(x, "bnk,bmk->bnm")
  nn.softmax(mask:move("bm->bnm", { n = 5 }):where(logit, -1e9))
  return { y = nn.softmax(logit) }
end
return { entries = { net = net } }
