-- fashion_base.lua -- trains the small edit model on three of its four kinds
-- of instructions.

local nn = require "nn"
local optim = require "optim"
local data = require "dalle2.data"
local fashion = require "fashion"

local batch = dpc.option("batch", 96, "triplets a step, a multiple of 3", 1)
local steps = dpc.option("steps", 900, "steps of the whole training", 1)
local judged = dpc.option("judged", true, "are pictures drawn and measured?")

-- As many of each kind, f32 [batch].
local function kinds()
  local i = dpc.iota({ batch }, 0)
  return i - ((i + 0.5) / 3):floor() * 3
end

local function train()
  local loss = fashion.loss(fashion.triplets(kinds()))
  local out = optim.step(loss, { lr = 2e-3, warmup = 50, steps = steps,
                                 ema = 0.99 })
  out.loss = loss
  return out
end

-- On photographs and pairs of colour and garment that were never seen.
local function eval()
  local kind = kinds()
  local t = fashion.triplets(kind, true)
  local y = nn.averaged(function() return fashion.drawn(t, 4) end)
  local right = fashion.right(y, t)
  local function of(name) return kind:eq(fashion.kind[name]) end
  local flips = of("mirror")
  return {
    recolour_error = fashion.mean(fashion.colour_error(y, t),
                                  of("recolour") * t.rare),
    recolour_right = fashion.mean(right, of("recolour") * t.rare),
    ground_right = fashion.mean(right, of("ground")),
    mirror_right = fashion.mean(right, flips),
    mirror_mse = fashion.mean(fashion.off(y, t), flips),
    copy_mse = fashion.mean(fashion.off(t.source * 0.5 + 0.5, t), flips),
  }
end

-- Source, result, truth, a row each, f32 [3 batch, 3, 28, 28] in 0..1.
local function draw()
  local t = fashion.triplets(kinds(), true)
  local y = nn.averaged(function() return fashion.drawn(t, 4) end)
  return { pictures = fashion.triptych(t, y) }
end

return {
  name = "edit",
  entries = { train = train, eval = judged and eval or nil,
              draw = judged and draw or nil },
  runs = judged and { draw = { "draw" } } or nil,
  meta = data.meta(),
}
