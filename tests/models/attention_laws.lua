-- attention_laws.lua -- attention that stores no scores equals the one that
-- does, forwards and backwards: as numbers that should be zero.
local nn = require "nn"

local function far(a, b)
  local d = (a - b):abs()
  return d:max(("abcdefgh"):sub(1, #d:dims()) .. "->")
end

local function normal(...)
  return dpc.random("normal", { ... })
end

local function plain(q, k, v, mask, shared)
  local kv, m = shared and "bs" or "bhs", #mask:dims() == 2 and "bs" or "bqs"
  local z = q:dot(k, "bhqd," .. kv .. "d->bhqs")
  z = nn.like(mask, m .. "->bhqs", z):where(z, -3.4e38)
  return nn.softmax(z):dot(v, "bhqs," .. kv .. "e->bhqe")
end

local function compare(law, name, q, k, v, mask, shared)
  local kv = shared and "bs" or "bhs"
  local m = #mask:dims() == 2 and "bs" or "bqs"
  local sig = ("bhqd,%sd,%se,%s->bhqe"):format(kv, kv, m)
  local a, b = q:attn(k, v, mask, sig), plain(q, k, v, mask, shared)
  law[name] = far(a, b)
  local way = normal(table.unpack(a:dims()))
  local function slopes(y)
    return dpc.grad((y * way):move("bhqe->"), { q, k, v })
  end
  local ga, gb = slopes(a), slopes(b)
  for i, of in ipairs{ "queries", "keys", "values" } do
    law[name .. "_" .. of] = far(ga[i], gb[i]) / 10
  end
end

-- The library's attention stores its scores, or does not.
local function ways(law)
  local function both(name, q, k, v, mask)
    law[name] = far(nn.attend(q, k, v, { mask = mask }),
                    nn.attend(q, k, v, { mask = mask, scores = 0 }))
  end
  local q, k, v = normal(2, 9, 3, 8), normal(2, 7, 3, 8), normal(2, 7, 3, 4)
  local tokens = dpc.iota({ 9, 7 }, 1):le(dpc.iota({ 9, 7 }, 0))
  local words = dpc.iota({ 2, 1, 7 }, 2):lt(dpc.const{ { { 7 } }, { { 4 } } })
  both("attend", q, k, v)
  both("attend_where_tokens_may", q, k, v, tokens)
  both("attend_where_words_are", q, k, v, words)
  both("attend_by_head", q, k, v,
       words:move("bnm->bhnm", { h = 1 }) * dpc.iota({ 1, 3, 1, 1 }, 1):lt(2)
           + tokens:move("nm->bhnm", { b = 1, h = 1 })
           * dpc.iota({ 1, 3, 1, 1 }, 1):eq(2))
  both("attend_shared", q, normal(2, 7, 8), normal(2, 7, 4), words)
end

local function laws()
  local law = {}
  local q = normal(2, 3, 37, 8) * 0.5
  local mask = dpc.iota({ 2, 70 }, 1):lt(dpc.const{ { 70 }, { 41 } })
  compare(law, "heads", q, normal(2, 3, 70, 8), normal(2, 3, 70, 5), mask)
  compare(law, "shared", q, normal(2, 70, 8), normal(2, 70, 5), mask, true)
  local causal = dpc.iota({ 2, 37, 70 }, 2):le(dpc.iota({ 2, 37, 70 }, 1))
  compare(law, "causal", q, normal(2, 3, 70, 8), normal(2, 3, 70, 5), causal)
  ways(law)
  return law
end

-- The largest deviation of all, for a binary.
local function worst()
  local top = dpc.const(0, {})
  for _, off in pairs(laws()) do
    top = top:maximum(off)
  end
  return { worst = top }
end

return {
  name = "attention", entries = { laws = laws, worst = worst },
  runs = { worst = { "worst" } },
}
