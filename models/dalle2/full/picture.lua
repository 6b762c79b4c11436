-- picture.lua -- resizing, blurring and cropping of pictures [b, c, h, w].

local nn = require "nn"
local along = require "along"

local picture = {}

-- Every p-th element of a dimension that the letters (h p) spell.
local function thinned(x, p)
  local y = x:move("b c (h p) (w q) -> b c h w p q", { p = p, q = p })
  return y:slice{ dim = 4, at = 0, size = 1 }
      :slice{ dim = 5, at = 0, size = 1 }
      :move("bchwpq->bchw")
end

-- To [b, c, n, n] by the element at floor(i have / n).
function picture.nearest(x, n)
  local h, w = x:dim(2), x:dim(3)
  if h == w and n % h == 0 then
    return n == h and x or nn.nearest(x, n // h)
  elseif h == w and h % n == 0 then
    return thinned(x, h // n)
  end
  return along.nearest(along.nearest(x, 2, n), 3, n)
end

-- The same, then into range { low, high }, if any; a picture of that size
-- stays.
function picture.fitted(x, n, range)
  if x:dim(3) == n then
    return x
  end
  local y = picture.nearest(x, n)
  return range and nn.clamp(y, range[1], range[2]) or y
end

-- To [b, c, n, n] by the antialiased cubic.
function picture.cubic(x, n)
  if x:dim(3) == n then
    return x
  end
  return along.cubic(along.cubic(x, 2, n), 3, n)
end

-- Element i + offset of n, mirrored at the borders.
local function mirrored(n, offset)
  local list = {}
  for i = 0, n - 1 do
    local at = math.abs(i + offset)
    list[i + 1] = at < n and at or 2 * (n - 1) - at
  end
  return list
end

-- w: weights of taps -r .. r, numbers or f32 [] -> the map f32 [n, n].
local function blur_map(n, w)
  local r, sum = #w // 2, nil
  if r >= n then
    dpc.fail(("blur: a kernel of %d on %d pixels; the mirror image ends")
             :format(#w, n))
  end
  for i, x in ipairs(w) do
    local at = dpc.const(mirrored(n, i - 1 - r)):move("i->in", { n = n })
    local tap = at:eq(dpc.iota({ n, n }, 1)) * x           -- [n, n]
    sum = sum and sum + tap or tap
  end
  return sum
end

-- Gaussian blur; sigma and size: numbers or f32 [].  Of `most` taps those
-- within size are taken; borders are mirrored.
function picture.blur(x, sigma, size, most)
  local w, sum = {}, nil
  local fixed = type(sigma) == "number" and type(size) == "number"
  for i = 1, most do
    local d = i - 1 - most // 2
    if fixed then
      w[i] = math.exp(-d * d / (2 * sigma * sigma))
    else
      local two = type(sigma) == "number" and dpc.const(sigma, {}) or sigma
      w[i] = (dpc.const(-d * d, {}) / (two * two * 2)):exp()
      if type(size) ~= "number" then
        w[i] = w[i] * dpc.const(2 * math.abs(d), {}):lt(size)
      end
    end
    sum = sum and sum + w[i] or w[i]
  end
  for i = 1, most do
    w[i] = w[i] / sum
  end
  return along.map(along.map(x, 2, blur_map(x:dim(2), w)), 3,
                   blur_map(x:dim(3), w))
end

-- A square of n pixels from each sample, its corner at row, column [b].
function picture.crop(x, n, row, column)
  local function cut(y, at)                                -- [b, h, c, w]
    local index = at:move("b->bn", { n = n })
        + dpc.iota({ y:dim(0), n }, 1)                     -- [b, n]
    return along.pick(y, index)
  end
  local y = cut(x:move("bchw->bhcw"), row)
  y = cut(y:move("bhcw->bwch"), column)
  return y:move("bwch->bchw")
end

-- Corners of crops, drawn: [b] in 0 .. have - n.
function picture.corners(b, have, n)
  return nn.random_int(have - n + 1, { b })
end

return picture
