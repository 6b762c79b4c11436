-- A perceptron that makes one bad number a step at --bad-step, in the midst of
-- a fused kernel.  The line to blame ends in "-- TRAP" and the trap's name.
local nn = require "nn"
local optim = require "optim"

local trap = dpc.option("trap", "log", "which mistake it makes")

local function train()
  local x = dpc.input("image", { 16, 12, 12 }, "u8"):cast("f32") / 255
  local label = nn.one_hot(dpc.input("label", { 16 }, "u8"), 10)
  local hurt = dpc.scalar("step", 0, "steps done")
      :eq(dpc.scalar("bad_step", -1, "the step that fails"))
  local y = nn.linear("out", x, 10, { over = 2 })           -- [b, 10]
  local masked = label:eq(1):where(-math.huge, y)           -- is no mistake
  local left = masked:sub(masked:max("bk -> b"):move("b -> bk", { k = 10 }))
  y = y + 0 * left:exp()
  if trap == "base" then                                    -- is in its weights
    y = y + nn.frozen(function()
      return nn.linear("base", x, 10, { over = 2 })
    end)
  end
  y = y + y:lt(1e9):where(y:sin(), (y - 1e9):log())         -- nobody sees it
  if trap == "log" then
    y = y + 0.25
    local l = (0.5 - hurt):log()                            -- TRAP log
    y = y * (1 + 0 * l)
  elseif trap == "row" then
    local rms = (y * y):move("bk -> b") / 10 - 1e9 * hurt
    rms = rms:sqrt()                                        -- TRAP row
    y = y / (1 + rms:move("b -> bk", { k = 10 }))
  elseif trap == "overflow" then
    local e = (1000 * hurt):exp()                           -- TRAP overflow
    y = y + (e - e)
  elseif trap == "fold" then
    local big = y:abs() + 3e38 * hurt
    local sum = big:move("bk -> b")                         -- TRAP fold
    y = y * (1 / (1 + sum)):move("b -> bk", { k = 10 })
    y = y * (1 + 0 * sum):move("b -> bk", { k = 10 })
  end
  local loss = nn.cross_entropy(y, label)
  local out = optim.step(loss, { lr = 2e-3, steps = 300, warmup = 1 })
  if trap == "state" then
    local w = dpc.state("shadow", { 7 })                    -- TRAP state
    dpc.set(w, w + (w * 0 + 0.5 - hurt):sqrt())
    out.finite = out.finite * w:move("a ->"):finite()
  end
  out.loss = loss
  return out
end

return { name = "trap", entries = { train = train } }
