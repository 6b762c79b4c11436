-- fuzz.lua -- a small model drawn by a seed, for `dpc verify --fuzz`: one of
-- the families of families.lua, with sizes and options by chance, and the
-- optimizer of the others.  The name says which.

local optim = require "optim"
local families = require "families"

local seed = dpc.option("seed", 0, "which model")
local kind = dpc.option("family", -1, "which family; -1: the seed's")

-- Numbers by a linear congruence (Knuth, TAOCP 2, 3.3.4): the same wherever
-- this runs.
local state = (seed * 7919 + 12345) % 2147483647

local draw = {}
function draw.below(n)
  state = (state * 48271 + 11) % 2147483647
  return (state >> 8) % n
end
function draw.pick(list) return list[draw.below(#list) + 1] end
function draw.coin() return draw.below(2) == 1 end

local name, family = families.at(kind < 0 and seed or kind)

local function train()
  local loss = family(draw)
  local out = optim.step(loss, {
    lr = 1e-3, steps = 10, warmup = draw.below(5), clip = 1 + draw.below(2),
    ema = draw.coin() and 0.9 or false, decay = draw.coin() and 0.1 or 0,
  })
  out.loss = loss
  return out
end

return { name = name, entries = { train = train } }
