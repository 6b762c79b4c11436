-- tied.lua -- a small language model whose last layer reads the table of words
-- again: on a pipeline the first and the last stage share it.

local nn = require "nn"
local optim = require "optim"

local batch = dpc.option("batch", 8, "sequences")
local blocks = dpc.option("blocks", 3, "of attention and a perceptron")
local words, n, k, heads = 16, 4, 8, 2

local function train()
  local ids = dpc.input("ids", { batch, n }, "i32")          -- [b, n]
  local table_ = nn.weight("words", { words, k }, nn.normal(0.1))
  local h = dpc.scope("in", function() return table_:take(ids) end)
  for i = 1, blocks do
    h = nn.transformer("block" .. i, h, heads, { causal = true })
  end
  local logit = dpc.scope("head", function()
    return nn.rms_norm("norm", h):dot(table_, "bnk,vk->bnv")
  end)
  local want = nn.one_hot(ids:move("bn->(bn)"), words)
  local loss = nn.cross_entropy(logit:move("bnv->(bn)v"), want)
  local out = optim.step(loss, { lr = 1e-3, steps = 10 })
  out.loss = loss
  return out
end

return { name = "tied", entries = { train = train } }
