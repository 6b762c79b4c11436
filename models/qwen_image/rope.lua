-- rope.lua -- where tokens are: rotary positions along three axes.
--
-- An image token stands at (frame, row, column): frame k for image k, rows and
-- columns counted from the middle, so that images of two sizes share their
-- centre.  A text token stands at one number on all three axes, beyond every
-- image.  Channels 2i and 2i + 1 of a head turn by position theta^(-2i / d), d
-- of the axis that the pair belongs to (Su et al. 2021, 3.2.2; Qwen-Image
-- Technical Report 2025, 2.4, MSRoPE).

local rope = {}

local THETA = 10000

-- Cosines and sines of positions, a list of numbers, along an axis of d
-- channels: [n, d / 2, 2].
local function table_of(positions, d)
  local rows = {}
  for k, at in ipairs(positions) do
    rows[k] = {}
    for i = 0, d // 2 - 1 do
      local angle = at * THETA ^ (-2 * i / d)
      rows[k][i + 1] = { math.cos(angle), math.sin(angle) }
    end
  end
  return dpc.const(rows)
end

local function range(first, n)
  local list = {}
  for i = 1, n do
    list[i] = first + i - 1
  end
  return list
end

-- Rows and columns are counted from the middle; of an odd number the one more
-- is before it.
local function centred(n) return range(-(n - n // 2), n) end

-- Turns of one image whose first frame is `first`: [f h w, d / 2, 2].
local function image_turns(size, dims, first)
  local f, h, w = table.unpack(size)
  local function along(letter, positions, d)               -- [f, h, w, d/2, 2]
    local sizes = { f = f, h = h, w = w }
    sizes[letter] = nil
    return table_of(positions, d):move(letter .. "ir->fhwir", sizes)
  end
  return along("f", range(first, f), dims[1])
      :concat(along("h", centred(h), dims[2]), { dim = 3 })
      :concat(along("w", centred(w), dims[3]), { dim = 3 })
      :move("f h w i r -> (f h w) i r")
end

-- Turns of the tokens of images { frames, rows, columns }, in order, and of
-- `text` text tokens, [n, d / 2, 2] each; dims: channels of a head for frame,
-- row, column.  layered: the last image is the condition, at frame -1
-- (Qwen-Image-Layered).
function rope.turns(images, text, dims, layered)
  local image, far = nil, layered and #images - 1 or 0
  for k, size in ipairs(images) do
    local first = layered and k == #images and -1 or k - 1
    local one = image_turns(size, dims, first)
    image = image and image:concat(one, { dim = 0 }) or one
    far = math.max(far, size[2] // 2, size[3] // 2)
  end
  local at = range(far, text)
  return image, table_of(at, dims[1])
      :concat(table_of(at, dims[2]), { dim = 1 })
      :concat(table_of(at, dims[3]), { dim = 1 })
end

-- x [b, n, h, d] turned by t [n, d / 2, 2], as complex numbers.
function rope.turned(x, t)
  local p = x:move("b n h (i r) -> b n h i r", { r = 2 })
  local function part(i)                                   -- [b, n, h, d / 2]
    return p:slice{ dim = 4, at = i, size = 1 }:move("bnhir->bnhi")
  end
  local function turn(i)
    return t:slice{ dim = 2, at = i, size = 1 }
        :move("nir->bnhi", { b = x:dim(0), h = x:dim(2) })
  end
  local re, im, cos, sin = part(0), part(1), turn(0), turn(1)
  local one = { r = 1 }
  return (re * cos - im * sin):move("bnhi->bnhir", one)
      :concat((re * sin + im * cos):move("bnhi->bnhir", one), { dim = 4 })
      :move("b n h i r -> b n h (i r)")
end

return rope
