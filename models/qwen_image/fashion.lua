-- fashion.lua -- an edit model in miniature: coloured clothes, instructions in
-- words, and the true result of each, all made inside the graph.
--
--     "make it blue"            another of eight colours
--     "put it on a sky background"   another of four
--     "mirror it"               left and right exchanged
--     "turn it into a silhouette"    black on white: kept from the base, for
--                               adapters to learn
--
-- The network is the transformer of Qwen-Image, small.  A token is a strip of
-- two rows of pixels; the source's strips follow the target's, in frame 1.
-- It says the clean picture and not the velocity, from which the sampler
-- derives it: what is lost of a picture in a narrow network is then lost once.

local nn = require "nn"
local mmdit = require "mmdit"
local data = require "dalle2.data"

local fashion = {}

local tiny = dpc.option("tiny", false, "the smallest network, for tests")
local STRIP, SIDE = 2, data.side
local ROWS = SIDE // STRIP                                 -- tokens a picture
local WIDE = 3 * STRIP * SIDE                              -- numbers a token
local LENGTH, WORDS = 6, 64          -- of an instruction; numbers a word

local config = mmdit.options{
  patch_size = 1, in_channels = WIDE, out_channels = WIDE,
  num_layers = tiny and 1 or 3, joint_attention_dim = WORDS,
  num_attention_heads = tiny and 2 or 4, attention_head_dim = 32,
  axes_dims_rope = { 8, 16, 8 },
}

---- instructions ----

local RECOLOUR, GROUND, MIRROR, SILHOUETTE = 0, 1, 2, 3
fashion.kind = { recolour = RECOLOUR, ground = GROUND, mirror = MIRROR,
                 silhouette = SILHOUETTE }
local NC, NB, NG = #data.colours, #data.backgrounds, #data.garments

-- Ids of words: 0 fills up, then those of `words`, colours, backgrounds.
local words = { "make", "it", "put", "on", "a", "background", "mirror",
                "turn", "into", "silhouette" }
local id = {}
for i, w in ipairs(words) do
  id[w] = i
end
local COLOUR = #words + 1
local VOCABULARY = COLOUR + NC + NB

-- i32 [b, 6] from kind, colour, ground f32 [b].
local function tokens(kind, colour, ground)
  local b = kind:dim(0)
  local line = {}
  for _, text in ipairs{ "make it", "put it on a . background", "mirror it",
                         "turn it into a silhouette" } do
    local row = { 0, 0, 0, 0, 0, 0 }
    local n = 0
    for w in text:gmatch("%S+") do
      n = n + 1
      row[n] = id[w] or 0
    end
    line[#line + 1] = row
  end
  local ids = dpc.const(line):take(kind:cast("i32"))       -- [b, 6]
  local function slot(v, at, which)
    local mask = { 0, 0, 0, 0, 0, 0 }
    mask[at] = 1
    return (v * kind:eq(which)):move("b->bl", { l = LENGTH })
        * dpc.const(mask)
  end
  return (ids + slot(colour + COLOUR, 3, RECOLOUR)
          + slot(ground + (COLOUR + NC), 5, GROUND)):cast("i32")
end

---- triplets ----

local function draw(b, n)                                  -- 0 .. n - 1, [b]
  return (dpc.random("uniform", { b }) * n):floor():minimum(n - 1)
end

local mirror = {}
for i = 1, SIDE do
  mirror[i] = {}
  for k = 1, SIDE do
    mirror[i][k] = i + k == SIDE + 1 and 1 or 0
  end
end

-- Left and right of x [b, 28, 28] exchanged.
local function mirrored(x)
  return x:dot(dpc.const(mirror), "bhw,wv->bhv")
end

-- Black on white, f32 [b, 3, 28, 28] in 0..1.
local function silhouette(grey)
  return 1 - data.alpha(grey):move("bhw->bchw", { c = 3 })
end

-- The true result of an instruction on d, f32 [b, 3, 28, 28] in 0..1; kind,
-- colour, ground f32 [b] or numbers.
local function edited(d, kind, colour, ground)
  local function chosen(which, new, old)
    return kind:eq(which):where(new, old)
  end
  local flip = nn.rows(kind:eq(MIRROR), d.grey)
  local y = data.paint(flip:where(mirrored(d.grey), d.grey),
                       chosen(RECOLOUR, colour, d.colour),
                       chosen(GROUND, ground, d.background))
  return nn.rows(kind:eq(SILHOUETTE), y):where(silhouette(d.grey), y)
end

-- kind f32 [b] -> source, target f32 [b, 3, 28, 28] in -1..1, tokens i32 [b,
-- 6], and what they were made of.  held: colours are those never seen on a
-- garment, and `rare` [b] is 1 where it has one; else they are never drawn.
function fashion.triplets(kind, held)
  local b = kind:dim(0)
  local d = data.batch(b)
  local colour, ground = draw(b, NC), draw(b, NB)
  local never, rare = {}, {}
  for g = 1, NG do
    never[g], rare[g] = { 0 }, { 0 }
  end
  for c = 0, NC - 1 do
    local g = data.held(c)
    never[g + 1], rare[g + 1] = { c }, { 1 }
  end
  local function of(list)
    return dpc.const(list):take(d.garment:cast("i32")):move("bo->b")
  end
  local is_rare = of(rare)
  if held then
    colour = is_rare:where(of(never), colour)
  else
    local next = (colour + 1) * colour:lt(NC - 1)
    colour = (is_rare * of(never):eq(colour)):where(next, colour)
  end
  return {
    d = d, kind = kind, source = d.picture, rare = is_rare,
    target = edited(d, kind, colour, ground) * 2 - 1,
    tokens = tokens(kind, colour, ground),
  }
end

---- the network ----

local function strips(x)                                   -- [b, 14, 168]
  return x:move("b c (h p) w -> b h (c p w)", { p = STRIP })
end

local function picture(x)                                  -- [b, 3, 28, 28]
  return x:move("b h (c p w) -> b c (h p) w", { p = STRIP, w = SIDE })
end

-- The clean picture, as strips: noisy strips x at s [b], beside t.
local function clean(x, s, t)
  return dpc.scope("edit", function()
    local ids = t.tokens                                   -- [b, 6]
    local o = setmetatable({ init_mod = nn.normal(0.02) }, { __index = config })
    local text = nn.weight("words", { VOCABULARY, WORDS }, nn.normal(1))
        :take(ids)
        + nn.weight("places", { LENGTH, WORDS }, nn.normal(0.5))
    local y = mmdit.forward(o, {
      hidden_states = x:concat(strips(t.source), { dim = 1 }), timestep = s,
      encoder_hidden_states = text,
      encoder_hidden_states_mask = 1 - ids:cast("f32"):lt(0.5),
      img_shapes = { { 1, ROWS, 1 }, { 1, ROWS, 1 } },
    })
    return y:slice{ dim = 1, at = 0, size = ROWS }
  end)
end

-- Mean squared error of the clean picture at s drawn towards noise, where the
-- source has to be looked at.
function fashion.loss(t)
  local x0 = strips(t.target)
  local u = dpc.random("uniform", { x0:dim(0) }) * 0.998 + 0.001
  local s = 1 / (1 + (1 / u - 1) * math.exp(-1.5))         -- [b]
  local all = nn.rows(s, x0)
  local x = (1 - all) * x0 + all * dpc.random("normal", x0:dims())
  return nn.mse(clean(x, s, t), x0)
end

-- Pictures in 0..1 by `steps` Euler steps along the velocity (x - x0) / s.
function fashion.drawn(t, steps)
  local b = t.source:dim(0)
  local x = dpc.random("normal", { b, ROWS, WIDE })
  for i = 0, steps - 1 do
    local s, to = 1 - i / steps, 1 - (i + 1) / steps
    local x0 = clean(x, dpc.const(s, { b }), t)
    x = x0 + (x - x0) * (to / s)
  end
  return (picture(x) * 0.5 + 0.5):maximum(0):minimum(1)
end

-- Source, result y and truth of each sample beside each other: f32 [3 b, 3,
-- 28, 28] in 0..1.
function fashion.triptych(t, y)
  local function one(x)
    return x:move("bchw->bochw", { o = 1 })
  end
  return one(t.source * 0.5 + 0.5):concat(one(y), { dim = 1 })
      :concat(one(t.target * 0.5 + 0.5), { dim = 1 })
      :move("b o c h w -> (b o) c h w")
end

---- measures ----

-- Sum over a picture of squares, [b].
local function square(x)
  return (x * x):move("bchw->b")
end

-- 1 where y [b, 3, 28, 28] is nearer to what was asked for than to any other
-- edit of its source, or as near: the judge, who asks no network.
function fashion.right(y, t)
  local b = y:dim(0)
  local want = square(y - (t.target * 0.5 + 0.5))          -- [b]
  local right
  local function against(kind, colour, ground)
    local z = edited(t.d, dpc.const(kind, { b }), dpc.const(colour, { b }),
                     dpc.const(ground, { b }))
    local ok = want:le(square(y - z) + 1e-4)
    right = right and right * ok or ok
  end
  for c = 0, NC - 1 do
    against(RECOLOUR, c, 0)
  end
  for g = 0, NB - 1 do
    against(GROUND, 0, g)
  end
  against(MIRROR, 0, 0)
  against(SILHOUETTE, 0, 0)
  return right
end

-- Mean |RGB - true| over the garment's pixels, [b].
function fashion.colour_error(y, t)
  local fore = 1 - data.alpha(t.d.grey):lt(0.5)            -- [b, 28, 28]
  local off = (y - (t.target * 0.5 + 0.5)):abs():dot(fore, "bchw,bhw->b")
  return off / (fore:move("bhw->b"):maximum(1) * 3)
end

-- Mean of v [b] where w [b] is not 0.
function fashion.mean(v, w)
  return (v * w):move("b->") / w:move("b->"):maximum(1)
end

-- Mean squared error of pictures in 0..1, [b].
function fashion.off(y, t)
  return square(y - (t.target * 0.5 + 0.5)) / (3 * SIDE * SIDE)
end

return fashion
