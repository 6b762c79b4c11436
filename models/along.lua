-- along.lua -- what is done along one dimension: order, picks, borders and
-- sizes, all from rows of the op table.
--
-- Dimensions count from 0, -1 is the last.  An index is a whole number in
-- f32.  Nothing here asks for the order of elements in time: a rank is a
-- count of smaller ones, a quantile a search by halves, a pick a product with
-- a matrix of zeros and ones; so each is one fused kernel, or a product, on
-- every target, and splits over ranks as those do.  No gradient flows through
-- an order; it flows through picks, borders and sizes.
-- In the shapes: n the length of the dimension, ... all others.

local along = {}

local function letters(n)
  return ("abcdefgh"):sub(1, n)
end

-- Letters of x, those without the dimension, its own, its number.
local function spelled(x, dim)
  local rank = #x:dims()
  local d = dim < 0 and dim + rank or dim
  local all = letters(rank)
  return all, all:sub(1, d) .. all:sub(d + 2), all:sub(d + 1, d + 1), d
end

-- The sizes of x, the dimension's being n.
local function sized(x, d, n)
  local dims = x:dims()
  dims[d + 1] = n
  return dims
end

-- Sizes of x by letter, of those in `some`.
local function sizes(x, all, some)
  local dims, size = x:dims(), {}
  for c in some:gmatch(".") do
    size[c] = dims[all:find(c, 1, true)]
  end
  return size
end

-- v [n] repeated to x [... n ...].
local function line(v, x, dim)
  local all, rest, c = spelled(x, dim)
  return v:move(c .. "->" .. all, sizes(x, all, rest))
end

-- v [...] repeated along the dimension of x [... n ...].
local function like(v, x, dim)
  local all, rest, c = spelled(x, dim)
  return v:move(rest .. "->" .. all, { [c] = x:dim(dim) })
end

---- sums and largest ----

-- Linear map of the dimension: x [... n ...], m [to, n] -> [... to ...].
function along.map(x, dim, m)
  local all, _, c = spelled(x, dim)
  local to = all:gsub(c, "z")
  return x:dot(m, all .. ",z" .. c .. "->" .. to)
end

-- Sums of 0..i at i: a product with a triangle of ones.
function along.cumsum(x, dim)
  local n = x:dim(dim)
  return along.map(x, dim, dpc.iota({ n, n }, 1):le(dpc.iota({ n, n }, 0)))
end

-- Index of the largest, the first of equals: [... n ...] -> [...].
function along.argmax(x, dim)
  local all, rest = spelled(x, dim)
  local n, fold = x:dim(dim), all .. "->" .. rest
  local hit = x:eq(like(x:max(fold), x, dim))              -- [... n ...]
  return n - (hit * line(n - dpc.iota({ n }), x, dim)):max(fold)
end

-- Smallest: [... n ...] -> [...].
function along.min(x, dim)
  local all, rest = spelled(x, dim)
  return -(-x):max(all .. "->" .. rest)
end

---- order ----

-- How many are larger, or equal and before it: 0 for the largest, a whole
-- number for each, none twice.  n n comparisons.
function along.rank(x, dim)
  local all, rest, c = spelled(x, dim)
  local n = x:dim(dim)
  local me = x:move(all .. "->" .. all .. "z", { z = n })  -- [... n ..., n]
  local other = x:move(all:gsub(c, "z") .. "->" .. all .. "z", { [c] = n })
  local before = dpc.iota({ n, n }, 1):lt(dpc.iota({ n, n }, 0)) -- [n, n]
      :move(c .. "z->" .. all .. "z", sizes(x, all, rest))
  return (me:lt(other) + me:eq(other) * before)
      :move(all .. "z->" .. all)
end

-- The k-th of `v` by `rank` at k: sum over i of v[i] where rank[i] = k.
local function by_rank(v, rank, k, dim)
  local all, _, c, d = spelled(rank, dim)
  local dims = rank:dims()
  dims[#dims + 1] = k
  local there = rank:move(all .. "->" .. all .. "z", { z = k })
      :eq(dpc.iota(dims, #dims - 1))                       -- [... n ..., k]
  return there:dot(v, all .. "z," .. all .. "->" .. all:gsub(c, "z"))
end

-- Indices of the k largest, the largest first: [... n ...] -> [... k ...].
function along.top(x, k, dim)
  local _, _, _, d = spelled(x, dim)
  return by_rank(dpc.iota(x:dims(), d), along.rank(x:stop(), dim), k, dim)
end

-- The largest first.  The gradient goes where the values came from.
function along.sort(x, dim)
  return by_rank(x, along.rank(x:stop(), dim), x:dim(dim), dim)
end

-- The value below which a share q of the elements lies, between neighbours by
-- straight lines: [... n ...] -> [...].  30 halvings of the range, then the
-- largest element below: right unless two elements are nearer than 2^-30 of
-- the range.
function along.quantile(x, q, dim)
  x = x:stop()
  local all, rest = spelled(x, dim)
  local fold = all .. "->" .. rest
  local at = q * (x:dim(dim) - 1)
  local k = math.floor(at)
  local function below(v)                                  -- how many <= v
    return x:le(like(v, x, dim)):move(fold)
  end
  local high, low = x:max(fold), along.min(x, dim)         -- [...]
  for _ = 1, 30 do
    local mid = (low + high) * 0.5
    local enough = below(mid):lt(k + 1)
    low, high = enough:where(mid, low), enough:where(high, mid)
  end
  local far = -3.4e38
  local value = x:le(like(high, x, dim)):where(x, far):max(fold)
  local above = -x:le(like(value, x, dim)):where(far, -x):max(fold)
  local next = below(value):lt(k + 2):where(above, value)
  return at == k and value or value + (next - value) * (at - k)
end

---- picks ----

-- Elements of x [..., n, d...] by index [..., k] -> [..., k, d...]; the
-- dimensions before the n are those of both.  Outside of 0..n-1: zeros.
function along.pick(x, index)
  local lead, have = #index:dims() - 1, #x:dims()
  local n, dims = x:dim(lead), index:dims()
  dims[#dims + 1] = n
  local a = letters(lead)
  local rest = ("pqrstuvw"):sub(1, have - lead - 1)
  local there = index:move(a .. "k->" .. a .. "kn", { n = n })
      :eq(dpc.iota(dims, #dims - 1))                       -- [..., k, n]
  return there:dot(x, a .. "kn," .. a .. "n" .. rest .. "->" .. a .. "k"
                      .. rest)
end

-- Rows of table [v, d...] by index [...], of any dtype -> [..., d...]; a whole
-- number is wanted.  Outside of 0..v-1: zeros.
function along.rows(table, index)
  local i = index:dtype() == "f32" and index:cast("i32") or index
  local a = letters(#index:dims())
  local rest, size, dims = ("pqrstuvw"):sub(1, #table:dims() - 1), {},
                           table:dims()
  for k = 2, #rest do
    size[rest:sub(k, k)] = dims[k + 1]
  end
  if rest == "" then
    return table:move("z->zp", { p = 1 }):take(i):move(a .. "p->" .. a)
  end
  local flat = "(" .. rest .. ")"
  return table:move("z" .. rest .. "->z" .. flat):take(i)
      :move(a .. flat .. "->" .. a .. rest, size)
end

-- Elements at a list of indices that is known now: for each i of the new
-- dimension, element list[i + 1].
function along.take(x, dim, list)
  local n = x:dim(dim)
  local at = dpc.const(list)
  return along.map(x, dim, at:move("m->mn", { n = n })
                   :eq(dpc.iota({ #list, n }, 1)))
end

-- The last element first.
function along.flip(x, dim)
  local list, n = {}, x:dim(dim)
  for i = 1, n do
    list[i] = n - i
  end
  return along.take(x, dim, list)
end

---- borders ----

-- `before` zeros, x, `after` zeros.
function along.pad(x, dim, before, after)
  local _, _, _, d = spelled(x, dim)
  local n = before + x:dim(dim) + after
  return x:pad(dpc.const(0, sized(x, d, n)), { dim = d, at = before })
end

-- The picture's mirror image outside of it, its border not repeated.
function along.reflect(x, dim, before, after)
  local list, n = {}, x:dim(dim)
  for i = -before, n - 1 + after do
    local at = math.abs(i)
    list[#list + 1] = at < n and at or 2 * (n - 1) - at
  end
  return along.take(x, dim, list)
end

-- `n` parts of one length: returns them.
function along.chunk(x, n, dim)
  local size, part = x:dim(dim) // n, {}
  for i = 1, n do
    part[i] = x:slice{ dim = dim, at = (i - 1) * size, size = size }
  end
  return table.unpack(part)
end

---- sizes ----

-- To length n by the nearest element: floor(i have / n), or, exact, the one
-- under the middle: floor((i + 1/2) have / n).
function along.nearest(x, dim, n, exact)
  local have, list = x:dim(dim), {}
  for i = 0, n - 1 do
    local at = exact and (2 * i + 1) * have // (2 * n) or i * have // n
    list[i + 1] = math.min(at, have - 1)
  end
  return along.take(x, dim, list)
end

-- Keys' cubic, a = -1/2 (IEEE ASSP 29(6), 1981).
local function keys(t)
  t = math.abs(t)
  if t <= 1 then
    return (1.5 * t - 2.5) * t * t + 1
  end
  return t < 2 and ((-0.5 * t + 2.5) * t - 4) * t + 2 or 0
end

-- To length n by cubic convolution; when it shrinks the filter is as much
-- wider (antialiasing).  Middles of both grids meet; what is outside is zero,
-- the weights of an element sum to one without it.
function along.cubic(x, dim, n)
  local have, rows = x:dim(dim), {}
  local scale = n / have
  local wide = math.min(scale, 1)
  for i = 0, n - 1 do
    local at = i / scale + (have - 1) / 2 - (n - 1) / (2 * scale)
    local row, sum = {}, 0
    for k = 0, have - 1 do
      row[k + 1] = keys((at - k) * wide)
    end
    for k = math.floor(at - 2 / wide), math.ceil(at + 2 / wide) do
      sum = sum + keys((at - k) * wide)
    end
    for k = 1, have do
      row[k] = row[k] / sum
    end
    rows[i + 1] = row
  end
  return along.map(x, dim, dpc.const(rows))
end

return along
