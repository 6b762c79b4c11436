-- judge.lua -- trains a judge on real photographs, and lets it judge drawings.
--
-- It knows nothing of the models that draw.  Beside garments it keeps, while
-- it trains, what real composites look like: the mean colour of the foreground
-- for each caption, and where each garment never is.  With these a drawing
-- is measured: is it the right garment, how far are its foreground pixels
-- from the colour that real ones have, how far is what should be background.

local nn = require "nn"
local optim = require "optim"
local data = require "data"
local net = require "net"

local batch = dpc.option("batch", net.tiny and 8 or 128, "pictures a step", 1)
local count = dpc.option("count", net.tiny and 4 or 80, "drawings at a time", 1)

local NG, N, SIDE = #data.garments, data.captions, data.side

-- A drawing with fewer foreground pixels shows nothing; foreground differs
-- from the background by more than NEAR in some channel; a pixel is never
-- garment when garments cover less than NEVER of it.
local FEW, NEAR, NEVER = 8, 0.25, 0.05

---- what real composites look like ----

local function known()
  return {
    colour = dpc.state("known.colour", { N, 3 }),          -- sums of means
    seen = dpc.state("known.seen", { N }),                 -- pictures
    cover = dpc.state("known.cover", { NG, SIDE, SIDE }),  -- sums of alpha
    worn = dpc.state("known.worn", { NG }),                -- pictures
  }
end

-- Of pictures [b, 3, 28, 28] in 0..1: foreground f32 0 or 1 [b, 28, 28], its
-- pixels [b] (at least 1), and 1 where there are enough of them [b].
local function foreground(picture, ground)
  local back = nn.like(data.background_rgb(ground), "bc->bchw", picture)
  local far = (picture - back):abs():max("bchw->bhw")      -- [b, 28, 28]
  local fore = 1 - far:le(NEAR)
  local pixels = fore:move("bhw->b")                       -- [b]
  return fore, pixels:maximum(1), 1 - pixels:lt(FEW)
end

local function remember(d)
  local k = known()
  local picture = d.picture * 0.5 + 0.5                    -- 0 .. 1
  local fore, pixels, enough = foreground(picture, d.background)
  local mean = picture:dot(fore, "bchw,bhw->bc")           -- [b, 3]
      / nn.like(pixels, "b->bc", dpc.const(0, { batch, 3 }))
  local number = data.caption_number(d.colour, d.background, d.garment)
  local mine = nn.one_hot(number, N)                       -- [b, 320]
      * enough:move("b->bn", { n = N })
  local garment = nn.one_hot(d.garment, NG)                -- [b, 10]
  dpc.set(k.colour, k.colour + mine:dot(mean, "bn,bc->nc"))
  dpc.set(k.seen, k.seen + mine:move("bn->n"))
  dpc.set(k.cover, k.cover
          + garment:dot(data.alpha(d.grey), "bg,bhw->ghw"))
  dpc.set(k.worn, k.worn + garment:move("bg->g"))
end

---- measures ----

-- pictures [b, 3, 28, 28] in 0..1; colour, ground, garment [b].  colour_error:
-- mean |RGB - expected| over foreground pixels (1 where there is none).
-- background_error: mean |RGB - background| where the garment never is.
-- All f32 [b].
local function measure(picture, colour, ground, garment)
  local k = known()
  local fore, pixels, enough = foreground(picture, ground)
  local mean = k.colour / nn.like(k.seen:maximum(1), "n->nc", k.colour)
  local number = data.caption_number(colour, ground, garment):cast("i32")
  local want = nn.like(mean:take(number), "bc->bchw", picture)
  local off = (picture - want):abs():dot(fore, "bchw,bhw->b") -- [b]
      / (pixels * 3)
  local cover = k.cover
      / nn.like(k.worn:maximum(1), "g->ghw", k.cover)      -- [10, 28, 28]
  local free = nn.one_hot(garment, NG)
      :dot(cover:lt(NEVER), "bg,ghw->bhw")                 -- [b, 28, 28]
  local back = nn.like(data.background_rgb(ground), "bc->bchw", picture)
  local wrong = (picture - back):abs():dot(free, "bchw,bhw->b") -- [b]
  return enough:where(off, 1),
      wrong / (free:move("bhw->b"):maximum(1) * 3)
end

-- Means over the batch, with the judge's own averages.
local function verdict(picture, colour, ground, garment)
  local colour_error, background_error = measure(picture, colour, ground,
                                                 garment)
  local logit, features = nn.averaged(function()
    return net.judge(picture * 2 - 1)
  end)                                           -- [b, 10], [b, features]
  local class = nn.one_hot(garment, NG)                    -- [b, 10]
  return {
    loss = nn.cross_entropy(logit, class),
    garment_accuracy = nn.accuracy(logit, class),
    color_error = nn.mean(colour_error),
    background_error = nn.mean(background_error),
  }, logit, features, colour_error, background_error
end

---- entries ----

local function train()
  local d = data.batch(batch, true)
  local logit = net.judge(d.picture)                       -- [b, 10]
  local class = nn.one_hot(d.garment, NG)
  local loss = nn.cross_entropy(logit, class)
  local out = optim.step(loss, { lr = 2e-3, warmup = 50, steps = 1300,
                                 ema = 0.99 })
  remember(d)
  out.loss, out.accuracy = loss, nn.accuracy(logit, class)
  return out
end

-- On real composites: what the numbers of drawings are compared with.
local function eval()
  local d = data.batch(batch, true)
  return (verdict(d.picture * 0.5 + 0.5, d.colour, d.background, d.garment))
end

-- On drawings, "pictures" f32 [count, 3, 28, 28] in 0..1, of captions; beside
-- the means each drawing's own numbers, and features for a Frechet distance
-- (Heusel et al. 2017).
local function score()
  local picture = dpc.input("pictures", { count, 3, SIDE, SIDE })
  local tokens = dpc.input("tokens", { count, data.length }, "i32")
  local colour, ground, garment = data.parse(tokens)       -- [count]
  local out, logit, features, off, wrong =
      verdict(picture, colour, ground, garment)
  local class = nn.one_hot(garment, NG)
  out.right = logit:max("bc->b"):le((logit * class):move("bc->b"))
  out.features, out.color_errors, out.background_errors = features, off, wrong
  return out
end

---- mean and covariance of the features of real composites ----

-- Even and odd batches apart: two halves that differ by chance alone.
local function sums()
  local f = net.size.features
  return dpc.state("half.n", { 2 }), dpc.state("half.sum", { 2, f }),
      dpc.state("half.outer", { 2, f, f })
end

local function clear()
  for _, s in ipairs{ sums() } do
    dpc.set(s, 0)
  end
end

local function real()
  local d = data.batch(batch, true)
  local n, sum, outer = sums()
  local step = dpc.scalar("step", 0, "steps done")         -- []
  local odd = step - (step * 0.5):floor() * 2              -- []
  local half = dpc.iota({ 2 }, 0):eq(odd)                  -- [2]
  local _, f = nn.averaged(function() return net.judge(d.picture) end)
  dpc.set(n, n + half * batch)
  dpc.set(sum, sum + half:move("i->if", { f = f:dim(1) })
          * f:move("bf->if", { i = 2 }))
  dpc.set(outer, outer
          + nn.like(half, "i->ifg", outer)
          * nn.like(f:dot(f, "bf,bg->fg"), "fg->ifg", outer))
end

local function halves()
  local n, sum, outer = sums()
  local one = n:maximum(1)                                 -- [2]
  local mean = sum / nn.like(one, "i->if", sum)            -- [2, features]
  local square = mean:dot(mean, "if,ig->ifg")
  return { mean = mean,
           covariance = outer / nn.like(one, "i->ifg", outer) - square }
end

return {
  name = "judge",
  entries = { train = train, eval = eval, score = score, clear = clear,
              real = real, halves = halves },
  runs = {
    score = { "score" },
    features = { "clear", { "real", times = net.tiny and 2 or 78 },
                 "halves" },
  },
  meta = data.meta(),
}
