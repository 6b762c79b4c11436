-- wide.lua -- weights and next to no work: how they are read is measured.

local n = dpc.option("params", 4, "of rows x 4096 numbers")
local rows = dpc.option("rows", 1024, "of each")

local function weights()
  local list = {}
  for i = 1, n do
    list[i] = dpc.param(("w%03d"):format(i), { rows, 4096 })
  end
  return list
end

local function total(list)
  local sum = dpc.const(0, {})
  for _, w in ipairs(list) do
    sum = sum + w:slice{ dim = 0, at = rows - 1, size = 1 }:move("ab->")
  end
  return sum
end

-- Gives them numbers.
local function train()
  local list = weights()
  local x = dpc.input("x", { 1 })
  for _, w in ipairs(list) do
    dpc.set(w, dpc.random("uniform", { rows, 4096 }))
  end
  return { loss = total(list) + x:move("b->") }
end

return { entries = { train = train,
                     look = function() return { sum = total(weights()) } end },
         runs = { sample = { "look" } } }
