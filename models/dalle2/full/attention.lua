-- attention.lua -- the four attentions of DALLE2-pytorch, and what they need:
-- rotary angles, T5's position bias, feed-forward layers.
--
-- All put a learned null key and value before the others, so that a query
-- that should look nowhere can; null_kv stands ahead of rotary angles and
-- behind no mask.  Outputs are normed once more.  Shapes: b batch, n queries,
-- m keys, h heads, d width of a head, k width of a token.

local nn = require "nn"
local layers = require "dalle2.full.layers"

local attention = {}
local bare = { bias = false }

-- Cosines are multiplied by this before the softmax.
local SHARPNESS = 16

-- Row i (0 keys, 1 values) of null_kv [2, d] before x [b, m, d].
local function behind_null(null, i, x)
  local row = null:slice{ dim = 0, at = i, size = 1 }      -- [1, d]
  return row:move("nd->bnd", { b = x:dim(0) }):concat(x, { dim = 1 })
end

-- y [b, n, h, d] -> [b, n, k] by "to_out".
local function join(y, k)
  local flat = y:move("b n h d -> b n (h d)")
  return layers.gain_norm("to_out.1",
                          layers.linear("to_out.0", flat, k, bare))
end

---- positions ----

-- x [..., n, d]: its first 2 r elements are turned in adjacent pairs by
-- cos, sin [n, r] (Su et al. 2021, 3.2.2).
function attention.rotate(x, cos, sin)
  local dims, r = x:dims(), cos:dim(1)
  local last = #dims - 1
  local all = ("bhn"):sub(4 - last)
  local pairs_ = x:slice{ dim = last, at = 0, size = 2 * r }
      :move(("%s(pt)->%spt"):format(all, all), { t = 2 })
  local function part(t)
    return pairs_:slice{ dim = last + 1, at = t, size = 1 }
        :move(("%spt->%sp"):format(all, all))              -- [..., n, r]
  end
  local a, b = part(0), part(1)
  local function back(y)
    return y:move(("%sp->%spt"):format(all, all), { t = 1 })
  end
  local y = back(a * cos - b * sin)
      :concat(back(b * cos + a * sin), { dim = last + 1 })
      :move(("%spt->%s(pt)"):format(all, all))
  if 2 * r == dims[#dims] then
    return y
  end
  local rest = x:slice{ dim = last, at = 2 * r, size = dims[#dims] - 2 * r }
  return y:concat(rest, { dim = last })
end

-- Cosines and sines [n, r / 2] of positions 0 .. n - 1; the frequencies are
-- the untrained leaf "rotary_emb.freqs".
function attention.rotary(n, r)
  local freqs = {}
  for j = 0, r // 2 - 1 do
    freqs[j + 1] = 10000 ^ (-2 * j / r)
  end
  local f = nn.fixed("rotary_emb.freqs", { r // 2 },
                     function() return dpc.const(freqs) end)
  local angle = dpc.iota({ n, r // 2 }, 0) * f             -- [n, r / 2]
  return angle:cos(), angle:sin()
end

local BUCKETS, FARTHEST = 32, 128

-- Bucket of a key that is `distance` tokens back: one each below half the
-- buckets, then in logarithmic steps.
local function bucket(distance)
  local half = BUCKETS // 2
  if distance < half then
    return math.max(distance, 0)
  end
  local step = math.log(distance / half) / math.log(FARTHEST / half)
  return math.min(half + math.floor(step * half), BUCKETS - 1)
end

-- T5's bias (Raffel et al. 2020, 2.1) for n queries and n + 1 keys, of which
-- the first is the null key: columns count it, so token t is at t + 1.
-- f32 [h, n, n + 1].
function attention.position_bias(name, n, heads)
  local rows = {}
  for i = 1, n do
    rows[i] = {}
    for j = 1, n + 1 do
      rows[i][j] = bucket(i - j)
    end
  end
  local ids = dpc.const(rows):cast("i32")                  -- [n, n + 1]
  return layers.embedding(name, ids, BUCKETS, heads):move("nmh->hnm")
end

---- attention ----

-- x [b, n, k] over itself, all heads sharing one key and value (Shazeer
-- 2019).  Scores are 16 cos(q, k) where o.cosine, else q k / d: both factors
-- carry the usual d^-1/2.
--   heads, dim_head, cosine, causal, dropout
--   bias f32 [h, n, n + 1]   rotary { cos, sin }
function attention.shared(x, o)
  local d, n = o.dim_head, x:dim(1)
  local null = nn.weight("null_kv", { 2, d }, nn.normal(1))
  local y = layers.gain_norm("norm", x)
  local q = layers.linear("to_q", y, o.heads * d, bare)
      :move("b n (h d) -> b h n d", { h = o.heads })
  local key, value = layers.halves(layers.linear("to_kv", y, 2 * d, bare), 2)
  if o.rotary then
    q = attention.rotate(q, o.rotary.cos, o.rotary.sin)
    key = attention.rotate(key, o.rotary.cos, o.rotary.sin)
  end
  key = behind_null(null, 0, key)                          -- [b, n + 1, d]
  value = behind_null(null, 1, value)
  if o.cosine then
    q, key = nn.l2_norm(q), nn.l2_norm(key)
  end
  local sharp = o.cosine and SHARPNESS or 1 / d
  local seen = o.causal and dpc.iota({ n, n + 1 }, 1)
      :le(dpc.iota({ n, n + 1 }, 0) + 1) or nil            -- [n, n + 1]
  local dropout = o.dropout or 0
  if not o.bias and dropout == 0 then
    return join(nn.attend(q:move("bhnd->bnhd") * sharp, key, value,
                          { mask = seen }), x:dim(-1))
  end
  local score = q:dot(key, "bhnd,bmd->bhnm") * sharp
  if o.bias then
    score = score + o.bias
  end
  if seen then
    score = seen:where(score, -1e30)
  end
  local weight = layers.dropout(nn.softmax(score), dropout)
  return join(weight:dot(value, "bhnm,bmd->bnhd"), x:dim(-1))
end

-- Pixels of x [b, c, h, w] over themselves, residual.
function attention.pixels(name, x, o)
  return dpc.scope(name .. ".fn.fn", function()
    local flat = x:move("b c h w -> b (h w) c")
    local y = attention.shared(flat, o) + flat
    return y:move("b (h w) c -> b c h w", { h = x:dim(2) })
  end)
end

local CROSS_HEADS, CROSS_WIDTH = 8, 64

-- x [b, n, k] over context [b, m, k']; heads and their width are fixed.
function attention.cross(name, x, context, cosine)
  local h, d = CROSS_HEADS, CROSS_WIDTH
  return dpc.scope(name, function()
    local null = nn.weight("null_kv", { 2, d }, nn.normal(1))
    local y = layers.gain_norm("norm", x)
    local q = layers.linear("to_q", y, h * d, bare)
        :move("b n (h d) -> b n h d", { h = h })
    local key, value = layers.halves(
        layers.linear("to_kv", context, 2 * h * d, bare), 2)
    local function all_keys(i, z)                          -- [b, m + 1, h, d]
      local heads = null:slice{ dim = 0, at = i, size = 1 }
          :move("nd->bnhd", { b = x:dim(0), h = h })
      return heads:concat(z:move("b m (h d) -> b m h d", { h = h }),
                          { dim = 1 })
    end
    key, value = all_keys(0, key), all_keys(1, value)
    if cosine then
      q, key = nn.l2_norm(q), nn.l2_norm(key)
    end
    q = q * (cosine and SHARPNESS or d ^ -0.5)
    return join(nn.attend(q, key, value), x:dim(-1))
  end)
end

-- Linear attention (Shen et al. 2018) among the pixels of x [b, c, h, w],
-- residual.
function attention.linear(name, x, heads, d)
  local c, w, n = x:dim(1), x:dim(3), x:dim(2) * x:dim(3)
  return dpc.scope(name .. ".fn", function()
    local y = layers.channel_norm("norm", x)
    local all = layers.conv("to_qkv", y, 3 * heads * d, 1, bare)
        :move("b (t e d) h w -> b t e (h w) d", { t = 3, e = heads })
    local function part(t)                                 -- [b, e, n, d]
      return all:slice{ dim = 1, at = t, size = 1 }:move("btend->bend")
    end
    local q = nn.softmax(part(0)) * d ^ -0.5
    local key = nn.softmax(part(1):move("bend->bedn"))     -- over pixels
    local value = nn.l2_norm(part(2))
    local context = key:dot(value, "bedn,benf->bedf") * (1 / n)
    y = nn.gelu(q:dot(context, "bend,bedf->befn"))
        :move("b e f (h w) -> b (e f) h w", { w = w })
    y = layers.conv("to_out.0", y, c, 1, bare)
    return x + layers.channel_norm("to_out.1", y)
  end)
end

---- feed-forward ----

-- x [b, n, k] -> same, by SwiGLU (Shazeer 2020); normed=true: once more
-- before the last layer (Shleifer et al. 2021).
function attention.feed_forward(x, mult, dropout, normed)
  local inner = math.floor(mult * x:dim(-1))
  local y = layers.linear("1", layers.gain_norm("0", x), 2 * inner, bare)
  local value, gate = layers.halves(y, 2)
  y = value * nn.silu(gate)                                -- [b, n, inner]
  if normed then
    y = layers.gain_norm("3", y)
  end
  return layers.linear("5", layers.dropout(y, dropout), x:dim(-1), bare)
end

return attention
