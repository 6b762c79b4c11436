-- fashion_lora.lua -- adapters teach the small edit model one more
-- instruction; its own weights are frozen.
--
-- Start with `--init-from edit=RUN:ema:partial`, RUN of fashion_base.lua.

local nn = require "nn"
local optim = require "optim"
local layers = require "layers"
local data = require "dalle2.data"
local fashion = require "fashion"

local batch = dpc.option("batch", 96, "triplets a step", 1)
local steps = dpc.option("steps", 200, "steps of the whole training", 1)
local rank = dpc.option("rank", 8, "of the adapters", 1)

local function adapted(fn)
  return nn.frozen(function() return layers.adapted({ rank = rank }, fn) end)
end

local function triplets()
  return fashion.triplets(dpc.const(fashion.kind.silhouette, { batch }), true)
end

local function train()
  local t = triplets()
  local loss = adapted(function() return fashion.loss(t) end)
  local out = optim.step(loss, { lr = 3e-3, warmup = 20, steps = steps,
                                 decay = 0, ema = false })
  out.loss = loss
  return out
end

-- What the judge says of the adapted model, and of the base alone.
local function eval()
  local t = triplets()
  local with = adapted(function() return fashion.drawn(t, 4) end)
  local without = nn.frozen(function() return fashion.drawn(t, 4) end)
  return {
    silhouette_right = nn.mean(fashion.right(with, t)),
    base_right = nn.mean(fashion.right(without, t)),
    silhouette_mse = nn.mean(fashion.off(with, t)),
  }
end

local function draw()
  local t = triplets()
  return { pictures = fashion.triptych(t, adapted(function()
    return fashion.drawn(t, 4)
  end)) }
end

return {
  name = "edit_lora",
  entries = { train = train, eval = eval, draw = draw },
  runs = { draw = { "draw" } },
  meta = data.meta(),
}
