-- data.lua -- coloured clothes from grey photographs, made inside the graph.
--
-- A grey photograph g becomes colour: with alpha = min(1, 3 g),
--     pixel = alpha COLOUR (0.35 + 0.65 g) + (1 - alpha) BACKGROUND,
-- and gets the caption "a COLOUR GARMENT on a BACKGROUND background".  Colour
-- and background are drawn at each step by counter, so they depend neither on
-- the plan nor on a restart.  Eight pairs of colour and garment are held out
-- of training: whether they are drawn right measures whether the parts of a
-- caption were learned apart.  Photographs: Fashion-MNIST (Xiao et al. 2017).

local nn = require "nn"

local data = { side = 28, length = 8 }

data.colours = {
  { "red",    0.85, 0.15, 0.15 }, { "green",  0.15, 0.65, 0.20 },
  { "blue",   0.15, 0.30, 0.85 }, { "yellow", 0.95, 0.85, 0.15 },
  { "orange", 0.95, 0.50, 0.10 }, { "purple", 0.55, 0.20, 0.70 },
  { "cyan",   0.15, 0.80, 0.80 }, { "brown",  0.50, 0.30, 0.15 },
}
data.backgrounds = {
  { "white", 1.00, 1.00, 1.00 }, { "black", 0.00, 0.00, 0.00 },
  { "sky",   0.53, 0.81, 0.92 }, { "pink",  1.00, 0.71, 0.76 },
}
-- In the order of the labels; the last has two words.
data.garments = {
  "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt",
  "sneaker", "bag", "ankle boot",
}

local NC, NB, NG = #data.colours, #data.backgrounds, #data.garments
data.captions = NC * NB * NG

---- words ----

-- Ids: 0 fills up, then A, ON, BACKGROUND, the colours, the backgrounds, the
-- garments (first words), BOOT.
local A, ON, BACK, COLOUR = 1, 2, 3, 4
local GROUND, GARMENT = COLOUR + NC, COLOUR + NC + NB
local BOOT = GARMENT + NG
data.words = BOOT + 1

local function vocabulary()
  local id = { a = A, on = ON, background = BACK, boot = BOOT }
  for i, c in ipairs(data.colours) do
    id[c[1]] = COLOUR + i - 1
  end
  for i, b in ipairs(data.backgrounds) do
    id[b[1]] = GROUND + i - 1
  end
  for i, g in ipairs(data.garments) do
    id[g:match("^%S+")] = GARMENT + i - 1
  end
  return id
end

-- The garment (from 0) that colour c (from 0) is never seen on.
local function held(c) return (3 * c + 1) % NG end
data.held = held

-- What the runtime and the demo should know of captions and pictures.
function data.meta()
  local colours, backgrounds, pairs_out, rgb_of = {}, {}, {}, {}
  for i, c in ipairs(data.colours) do
    colours[i], rgb_of[c[1]] = c[1], { c[2], c[3], c[4] }
    pairs_out[i] = { c[1], data.garments[held(i - 1) + 1] }
  end
  for i, b in ipairs(data.backgrounds) do
    backgrounds[i], rgb_of[b[1]] = b[1], { b[2], b[3], b[4] }
  end
  return {
    caption = { input = "tokens", length = data.length, vocab = vocabulary(),
                template = "a COLOUR GARMENT on a BACKGROUND background" },
    colours = colours, backgrounds = backgrounds, garments = data.garments,
    held_out = pairs_out, range = { 0, 1 }, rgb = rgb_of,
  }
end

-- i32 [b, 8] from colour, background, garment, all f32 [b], from 0.  Seven
-- words and a fill, or eight with "ankle boot".
function data.tokens(colour, background, garment)
  local b = colour:dim(0)
  local function slots(v, mask)                            -- [b] -> [b, 8]
    return v:move("b->bl", { l = data.length }) * dpc.const(mask)
  end
  local two = garment:eq(NG - 1):move("b->bl", { l = data.length })
  local one_word = dpc.const{ A, 0, 0, ON, A, 0, BACK, 0 }
      + slots(background + GROUND, { 0, 0, 0, 0, 0, 1, 0, 0 })
  local two_words = dpc.const{ A, 0, 0, BOOT, ON, A, 0, BACK }
      + slots(background + GROUND, { 0, 0, 0, 0, 0, 0, 1, 0 })
  local ids = two:where(two_words, one_word)               -- [b, 8]
      + slots(colour + COLOUR, { 0, 1, 0, 0, 0, 0, 0, 0 })
      + slots(garment + GARMENT, { 0, 0, 1, 0, 0, 0, 0, 0 })
  return ids:cast("i32")
end

-- colour, background, garment f32 [b] from captions i32 [b, 8]; what a
-- caption does not say in its place reads as a number out of range.
function data.parse(tokens)
  local ids = tokens:cast("f32")                           -- [b, 8]
  local function at(i)                                     -- [b]
    return ids:slice{ dim = 1, at = i, size = 1 }:move("bl->b")
  end
  local garment = at(2) - GARMENT
  local ground = garment:eq(NG - 1):where(at(6), at(5)) - GROUND
  return at(1) - COLOUR, ground, garment
end

-- Captions of everything there is, i32 [320, 8]: number
-- (garment 8 + colour) 4 + background.
function data.all_captions()
  local i = dpc.iota({ data.captions }, 0)                 -- [320]
  local garment = (i * (1 / (NC * NB)) + 1e-4):floor()
  local rest = i - garment * (NC * NB)
  local colour = (rest * (1 / NB) + 1e-4):floor()
  return data.tokens(colour, rest - colour * NB, garment)
end

-- The number of a caption, f32 [b].
function data.caption_number(colour, background, garment)
  return (garment * NC + colour) * NB + background
end

---- pictures ----

-- Rows of a list { name, r, g, b } by number f32 [b] -> [b, 3] in 0..1.
local function rgb(list, number)
  local table_ = {}
  for i, c in ipairs(list) do
    table_[i] = { c[2], c[3], c[4] }
  end
  return dpc.const(table_):take(number:cast("i32"))
end

function data.colour_rgb(colour) return rgb(data.colours, colour) end
function data.background_rgb(ground) return rgb(data.backgrounds, ground) end

-- Garment over background: grey f32 [b, 28, 28] in 0..1 -> alpha, likewise.
function data.alpha(grey)
  return (grey * 3):minimum(1)
end

-- Pictures f32 [b, 3, 28, 28] in 0..1; grey [b, 28, 28], colour, ground [b].
function data.paint(grey, colour, ground)
  local wide = { c = 3 }
  local g = grey:move("bhw->bchw", wide)                   -- [b, 3, 28, 28]
  local a = data.alpha(grey):move("bhw->bchw", wide)
  local fore = nn.like(data.colour_rgb(colour), "bc->bchw", g)
  local back = nn.like(data.background_rgb(ground), "bc->bchw", g)
  return a * fore * (g * 0.65 + 0.35) + (1 - a) * back
end

-- Whole numbers 0 .. n - 1, f32 [b].
local function draw(b, n)
  return (dpc.random("uniform", { b }) * n):floor():minimum(n - 1)
end

-- A batch from the inputs "image" u8 [b, 28, 28] and "label" u8 [b]:
--   picture f32 [b, 3, 28, 28] in -1 .. 1, grey f32 [b, 28, 28] in 0 .. 1,
--   colour, background, garment f32 [b], tokens i32 [b, 8].
-- all: draw the held-out pairs too; else their colour moves on by one, which
-- is never held out as well.
function data.batch(b, all)
  local image = dpc.input("image", { b, data.side, data.side }, "u8")
  local garment = dpc.input("label", { b }, "u8"):cast("f32")
  local colour, ground = draw(b, NC), draw(b, NB)
  if not all then
    local out = {}
    for c = 0, NC - 1 do
      out[c + 1] = { held(c) }
    end
    local never = dpc.const(out):take(colour:cast("i32"))  -- [b, 1]
    local next = (colour + 1) * colour:lt(NC - 1)          -- [b]
    colour = never:move("bo->b"):eq(garment):where(next, colour)
  end
  local grey = image:cast("f32") * (1 / 255)
  return {
    picture = data.paint(grey, colour, ground) * 2 - 1, grey = grey,
    colour = colour, background = ground, garment = garment,
    tokens = data.tokens(colour, ground, garment),
  }
end

return data
