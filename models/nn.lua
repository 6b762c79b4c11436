-- nn.lua -- layers, norms, losses and initialisers, all from rows of the op
-- table (`dpc ops`).
--
-- A layer takes its name first and opens a scope of that name, so a weight is
-- called by its way: "decoder.mid.attn.q.w".  Sizes come from the operand.
-- Values are f32; which of them are computed in bf16 is the compiler's matter.
-- In the shapes: b batch, n and m tokens, c channels, h w picture, k width.

local along = require "along"
local nn = {}

---- where weights come from ----

-- "trained": a param.  "averaged": the state "ema.NAME", which optim.lua
-- keeps.  "frozen": a param that no gradient reaches, from a checkpoint.
local mode = "trained"

local function restore(was, ...)
  mode = was
  return ...
end

local function within(how, fn)
  local was = mode
  mode = how
  return restore(was, fn())
end

-- Weights in fn are the moving averages of this unit's own: for eval, sample.
-- Call it outside of every scope.
function nn.averaged(fn)
  return within("averaged", function() return dpc.scope("ema", fn) end)
end

-- Weights in fn belong to another model and stay as they are
-- (`--init-from PREFIX=PATH:ema`).
function nn.frozen(fn)
  return within("frozen", fn)
end

-- A weight f32 dims; init: function(dims) -> value or number; nil: zeros.
function nn.weight(name, dims, init)
  if mode == "averaged" then
    return dpc.state(name, dims, { init = init })
  end
  return dpc.param(name, dims, { init = init, frozen = mode == "frozen" })
end

-- What a checkpoint holds beside weights, and nothing trains: f32 dims.
function nn.fixed(name, dims, init)
  if mode == "averaged" then
    return dpc.state(name, dims, { init = init })
  end
  return dpc.param(name, dims, { init = init, frozen = true })
end

---- initialisers: function(dims) -> f32 dims ----

function nn.zeros() return 0 end
function nn.ones() return 1 end

function nn.constant(x)
  return function() return x end
end

-- Gaussian of standard deviation `std`.
function nn.normal(std)
  return function(dims) return dpc.random("normal", dims) * std end
end

-- Uniform in -bound .. bound.
function nn.uniform(bound)
  return function(dims)
    return (dpc.random("uniform", dims) - 0.5) * (2 * bound)
  end
end

-- Variance 1 / fan: keeps the variance of a linear layer (LeCun et al.,
-- Efficient BackProp, 4.6).
function nn.lecun(fan) return nn.normal(fan ^ -0.5) end

-- Uniform of variance 2 / fan: the same under ReLU (He et al. 2015, 2.2).
function nn.kaiming(fan) return nn.uniform((6 / fan) ^ 0.5) end

---- shapes ----

-- n letters from `first` on.
local function letters(first, n)
  local s = ""
  for i = 0, n - 1 do
    s = s .. string.char(first:byte() + i)
  end
  return s
end

local function volume(dims)
  local n = 1
  for _, d in ipairs(dims) do
    n = n * d
  end
  return n
end

-- v repeated to x's shape: nn.like(mean, "bg->bgchw", x); the right side
-- names x's dimensions, the left side v's.
function nn.like(v, sig, x)
  local left, right = sig:match("^(%a*)%->(%a*)$")
  local size = {}
  for i = 1, #right do
    local c = right:sub(i, i)
    if not left:find(c, 1, true) then
      size[c] = x:dim(i - 1)
    end
  end
  return v:move(sig, size)
end

-- v [b] or [] repeated to x's shape [b, ...].
function nn.rows(v, x)
  local all = letters("a", #x:dims())
  return nn.like(v, all:sub(1, #v:dims()) .. "->" .. all, x)
end

-- Mean over the letters that vanish: nn.mean(x, "bgchw->bg"); without
-- signature over all: f32 [].
function nn.mean(x, sig)
  local y = x:move(sig or letters("a", #x:dims()) .. "->")
  return y * (volume(y:dims()) / volume(x:dims()))
end

-- x [b, c, h p, w p] -> [b, c p p, h, w]: channel slowest, then row, column.
function nn.space_to_depth(x, p)
  return x:move("b c (h p) (w q) -> b (c p q) h w", { p = p, q = p })
end

-- Its inverse: x [b, c p p, h, w] -> [b, c, h p, w p] (pixel shuffle, Shi et
-- al. 2016).
function nn.depth_to_space(x, p)
  return x:move("b (c p q) h w -> b c (h p) (w q)", { p = p, q = p })
end

-- x [b, c, h, w] -> [b, c, h p, w p], each pixel p times p.
function nn.nearest(x, p)
  return x:move("b c h w -> b c (h p) (w q)", { p = p, q = p })
end

-- Zeros around x [b, c, h, w]: around = { left, right, top, bottom }.
function nn.pad2d(x, around)
  local left, right, top, bottom = table.unpack(around)
  x = top + bottom > 0 and along.pad(x, 2, top, bottom) or x
  return left + right > 0 and along.pad(x, 3, left, right) or x
end

-- x [b, k] -> [b, 1, k]: one token.
function nn.token(x)
  return x:move("bk->bnk", { n = 1 })
end

-- Token i (from 0) of x [b, n, k] -> [b, k].
function nn.token_at(x, i)
  return x:slice{ dim = 1, at = i, size = 1 }:move("bnk->bk")
end

-- 1 where label = class, else 0: label [b] of any dtype -> f32 [b, c].
function nn.one_hot(label, classes)
  local l = label:dtype() == "f32" and label or label:cast("f32") -- [b]
  return l:move("b->bc", { c = classes })
      :eq(dpc.iota({ l:dim(0), classes }, 1))
end

---- activations ----

-- x sigmoid(x) (Elfwing et al. 2017; "swish").
function nn.silu(x) return x * x:sigmoid() end

-- x Phi(x), exact (Hendrycks and Gimpel 2016).
function nn.gelu(x)
  return x * ((x * 2 ^ -0.5):erf() + 1) * 0.5
end

-- Its two approximations: by tanh, and x sigmoid(1.702 x).
function nn.gelu_tanh(x)
  return x * (((x + x * x * x * 0.044715) * (2 / math.pi) ^ 0.5):tanh() + 1)
      * 0.5
end
function nn.quick_gelu(x) return x * (x * 1.702):sigmoid() end

-- x where it is above 0, else slope x (slope: 0.1).
function nn.leaky_relu(x, slope)
  return x:step():where(x, x * (slope or 0.1))
end

-- Into low .. high, numbers or values; no gradient from outside.
function nn.clamp(x, low, high)
  return x:maximum(low):minimum(high)
end

-- y forwards, the gradient of x backwards (Bengio et al. 2013).
function nn.straight_through(x, y)
  return x + (y - x):stop()
end

-- Over the last dimension; the largest is taken off first, so that nothing
-- overflows.  No gradient flows through it: the result does not depend on it.
local function shifted(x)
  local all = letters("a", #x:dims())
  local row = all:sub(1, -2)
  local top = x:max(all .. "->" .. row):stop()            -- [...]
  return x - nn.like(top, row .. "->" .. all, x), all, row
end

-- x [..., c] -> [..., c], rows that sum to one.
function nn.softmax(x)
  local y, all, row = shifted(x)
  local e = y:exp()                                        -- [..., c]
  local sum = e:move(all .. "->" .. row)                   -- [...]
  return e / nn.like(sum, row .. "->" .. all, x)
end

-- Its logarithm.
function nn.log_softmax(x)
  local y, all, row = shifted(x)
  local sum = y:exp():move(all .. "->" .. row)             -- [...]
  return y - nn.like(sum:log(), row .. "->" .. all, x)
end

-- log of the sum of e to the x over the last dimension: [..., c] -> [...].
function nn.log_sum_exp(x)
  local all = letters("a", #x:dims())
  local row = all:sub(1, -2)
  local top = x:max(all .. "->" .. row):stop()             -- [...]
  local sum = (x - nn.like(top, row .. "->" .. all, x)):exp()
      :move(all .. "->" .. row)                            -- [...]
  return sum:log() + top
end

-- Softmax over the last dimension where mask is 1, 0 elsewhere; mask
-- broadcasts to x.  A row without a 1 is even.
function nn.masked_softmax(x, mask)
  return nn.softmax(mask:where(x, -3.4e38))
end

-- x / max(|x|, 1e-12) over the last dimension; a row of zeros stays, and has
-- a gradient.
function nn.l2_norm(x)
  local all = letters("a", #x:dims())
  local row = all:sub(1, -2)
  local square = (x * x):move(all .. "->" .. row)          -- [...]
  return x * nn.like(square:maximum(1e-24):rsqrt(), row .. "->" .. all, x)
end

-- x / |x| over the last dimension.
function nn.unit(x)
  local all = letters("a", #x:dims())
  local row = all:sub(1, -2)
  local square = (x * x):move(all .. "->" .. row)          -- [...]
  return x * nn.like((square + 1e-12):rsqrt(), row .. "->" .. all, x)
end

-- Elements survive with probability 1 - p, scaled up (Srivastava et al.
-- 2014).  p: number, or scalar f32 [].
function nn.dropout(x, p)
  local u = dpc.random("uniform", x:dims())                -- like x
  return x * u:lt(1 - p) / (1 - p)
end

-- f32 dims: 1 with probability p, else 0.
function nn.bernoulli(p, dims)
  return dpc.random("uniform", dims):lt(p)
end

-- f32 dims: whole numbers 0..n-1, each as likely as the others.
function nn.random_int(n, dims)
  return (dpc.random("uniform", dims) * n):floor()
end

---- layers with weights ----

-- x [..., k] times w [k, out...] -> [..., out...].  out: a size, or a list of
-- them: heads and their width stand apart, so that nothing is transposed or
-- cut.  over: how many last dimensions of x are folded (1).  bias=false, init.
function nn.linear(name, x, out, o)
  o = o or {}
  local to = type(out) == "table" and out or { out }
  local have, over = x:dims(), o.over or 1
  local kept, dims = #have - over, {}
  for i = kept + 1, #have do
    dims[#dims + 1] = have[i]
  end
  local fan = volume(dims)
  for _, n in ipairs(to) do
    dims[#dims + 1] = n
  end
  local a, k, m = letters("a", kept), letters("k", over), letters("p", #to)
  return dpc.scope(name, function()
    local w = nn.weight("w", dims, o.init or nn.lecun(fan)) -- [k, out...]
    local y = x:dot(w, a .. k .. "," .. k .. m .. "->" .. a .. m)
    return o.bias == false and y or y + nn.weight("b", to)  -- [..., out...]
  end)
end

-- x [b, c, h, w] with filters w [out, c / groups, size, size] -> [b, out, h',
-- w'].  pad: zeros around (half the size, rounded down), or { left, right,
-- top, bottom }; stride, dilate, groups, bias=false, init.
function nn.conv2d(name, x, out, size, o)
  o = o or {}
  local groups, pad = o.groups or 1, o.pad or size // 2
  local c = x:dim(1) // groups
  if type(pad) == "table" then
    x, pad = nn.pad2d(x, pad), 0
  end
  return dpc.scope(name, function()
    local w = nn.weight("w", { out, c, size, size },
                        o.init or nn.lecun(c * size * size))
    local y = x:conv(w, { stride = o.stride or 1, pad = pad, g = groups,
                          dilate = o.dilate or 1 })       -- [b, out, h', w']
    if o.bias == false then
      return y
    end
    return y + nn.like(nn.weight("b", { out }), "o->bohw", y)
  end)
end

-- Its adjoint: x [b, c, h, w] with filters w [c, out, size, size] -> [b, out,
-- h', w'], h' = (h - 1) stride - 2 pad + size.  stride (2), pad, bias=false.
function nn.conv_transpose2d(name, x, out, size, o)
  o = o or {}
  local dims, stride, pad = x:dims(), o.stride or 2, o.pad or 0
  local c = dims[2]
  for d = 3, 4 do
    dims[d] = (dims[d] - 1) * stride - 2 * pad + size
  end
  dims[2] = out
  return dpc.scope(name, function()
    local w = nn.weight("w", { c, out, size, size },
                        o.init or nn.lecun(c * size * size))
    local y = x:conv_dx(w, dpc.const(0, dims), { stride = stride, pad = pad })
    if o.bias == false then
      return y
    end
    return y + nn.like(nn.weight("b", { out }), "o->bohw", y)
  end)
end

-- Rows of a table [words, width] for ids i32 [...] -> [..., width].
function nn.embedding(name, ids, words, width, o)
  return dpc.scope(name, function()
    local init = o and o.init or nn.normal(0.02)
    return nn.weight("w", { words, width }, init):take(ids)
  end)
end

-- x [..., k], each row to mean 0 and variance 1, then gain and bias (Ba et
-- al. 2016).
function nn.layer_norm(name, x)
  local all = letters("a", #x:dims())
  local row = all:sub(1, -2)
  local fold, back = all .. "->" .. row, row .. "->" .. all
  return dpc.scope(name, function()
    local d = x - nn.like(nn.mean(x, fold), back, x)       -- [..., k]
    local scale = (nn.mean(d * d, fold) + 1e-5):rsqrt()    -- [...]
    local k = { x:dim(-1) }
    return d * nn.like(scale, back, x) * nn.weight("gain", k, nn.ones)
        + nn.weight("bias", k)
  end)
end

-- x [..., k] by the root of its mean square (Zhang and Sennrich 2019).
function nn.rms_norm(name, x)
  local all = letters("a", #x:dims())
  local row = all:sub(1, -2)
  local fold, back = all .. "->" .. row, row .. "->" .. all
  return dpc.scope(name, function()
    local scale = (nn.mean(x * x, fold) + 1e-6):rsqrt()    -- [...]
    return x * nn.like(scale, back, x)
        * nn.weight("gain", { x:dim(-1) }, nn.ones)
  end)
end

-- x [b, c, h, w]: mean 0 and variance 1 in each of `groups` runs of channels
-- (Wu and He 2018), then gain and bias, then, if given, times (1 + scale) plus
-- shift, both [b, c] (Dhariwal and Nichol 2021, 3).
function nn.group_norm(name, x, groups, scale, shift)
  local c = x:dim(1)
  return dpc.scope(name, function()
    local g = x:move("b (g c) h w -> b g c h w", { g = groups })
    local d = g - nn.like(nn.mean(g, "bgchw->bg"), "bg->bgchw", g)
    local inv = (nn.mean(d * d, "bgchw->bg") + 1e-5):rsqrt() -- [b, g]
    local y = (d * nn.like(inv, "bg->bgchw", g))
        :move("b g c h w -> b (g c) h w")                  -- [b, c, h, w]
    y = y * nn.like(nn.weight("gain", { c }, nn.ones), "c->bchw", x)
        + nn.like(nn.weight("bias", { c }), "c->bchw", x)
    if scale then
      y = y * nn.like(scale + 1, "bc->bchw", x)
          + nn.like(shift, "bc->bchw", x)
    end
    return y                                               -- [b, c, h, w]
  end)
end

-- Scores that attention may store: 256 MiB; more of them are made again where
-- they are read (`dpc ops`: attn), for about twice the time.
local SCORES = 2 ^ 26

-- mask with its signature over b, h, q, s; of [n, m], [b, n, m], [b, h, n, m],
-- sizes of one left out.
local function mask_spelled(mask, m)
  if not mask then
    return dpc.const(1, { m }), "s"
  end
  local sig, kept = ("bhqs"), ""
  local dims = mask:dims()
  sig = #dims == 2 and "qs" or #dims == 3 and "bqs" or sig
  for i = 1, #dims - 1 do
    kept = kept .. (dims[i] > 1 and sig:sub(i, i) or "")
  end
  return kept .. "s" == sig and mask or mask:move(sig .. "->" .. kept .. "s"),
         kept .. "s"
end

-- Values averaged by the softmax of q k: q [b, n, h, d], k [b, m, h, d] and v
-- [b, m, h, e], or, shared by heads, [b, m, d] and [b, m, e] -> [b, n, h, e].
-- mask: f32 [n, m], [b, n, m] or [b, h, n, m], sizes of one broadcast; 1 where
-- a query may look, at one at least.  scale: of q k.  scores: as many are
-- stored at most.
function nn.attend(q, k, v, o)
  o = o or {}
  local h, n, m = q:dim(2), q:dim(1), k:dim(1)
  local shared = #k:dims() == 3 and "" or "h"
  if q:dim(0) * h * n * m > (o.scores or SCORES) then
    local mask, sig = mask_spelled(o.mask, m)
    q = o.scale and q * o.scale or q
    return q:attn(k, v, mask, ("bqhd,bs%sd,bs%se,%s->bqhe")
                                  :format(shared, shared, sig))
  end
  local logit = q:dot(k, "bnhd,bm" .. shared .. "d->bhnm")
  logit = o.scale and logit * o.scale or logit
  if o.mask then
    local mask = #o.mask:dims() == 3 and o.mask:move("bnm->bhnm", { h = 1 })
        or o.mask
    logit = mask:where(logit, -1e9)
  end
  return nn.softmax(logit):dot(v, "bhnm,bm" .. shared .. "e->bnhe")
end

-- Multi-head attention (Vaswani et al. 2017, 3.2.2) of x [b, n, k] over
-- itself or o.context [b, m, k'] -> [b, n, k].  o.causal: token n sees 0..n;
-- o.mask, o.scores: as of attend; o.out: init of the last layer.
function nn.attention(name, x, heads, o)
  o = o or {}
  local k, n = x:dim(-1), x:dim(1)
  local d, from = k // heads, o.context or x
  local m, bare = from:dim(1), { bias = false }
  return dpc.scope(name, function()
    local q = nn.linear("q", x, { heads, d }, bare)        -- [b, n, h, d]
    local key = nn.linear("k", from, { heads, d }, bare)   -- [b, m, h, d]
    local value = nn.linear("v", from, { heads, d }, bare) -- [b, m, h, d]
    local mask = o.mask
    if o.causal then
      local seen = dpc.iota({ n, m }, 1):le(dpc.iota({ n, m }, 0)) -- [n, m]
      mask = mask and mask * seen or seen
    end
    local y = nn.attend(q, key, value, { mask = mask, scale = d ^ -0.5,
                                         scores = o.scores })
    return nn.linear("out", y, k, { over = 2, init = o.out }) -- [b, n, k]
  end)
end

-- x [..., k] -> [..., hidden] -> [..., k] (or `out`).  act: nn.gelu.
function nn.mlp(name, x, hidden, o)
  o = o or {}
  return dpc.scope(name, function()
    local h = (o.act or nn.gelu)(nn.linear("up", x, hidden))
    return nn.linear("down", h, o.out or x:dim(-1), { init = o.init })
  end)
end

-- One pre-norm transformer block on x [b, n, k] (Xiong et al. 2020).
function nn.transformer(name, x, heads, o)
  return dpc.scope(name, function()
    x = x + nn.attention("attn", nn.layer_norm("norm1", x), heads, o)
    return x + nn.mlp("mlp", nn.layer_norm("norm2", x), 4 * x:dim(-1))
  end)
end

-- t [b] in 0..1 -> [b, width]: sines, then cosines, of 1000 t at frequencies
-- 1 .. 1/10000 (Vaswani et al. 2017, 3.5; Ho et al. 2020).
function nn.sinusoid(t, width)
  local half, freq = width // 2, {}
  for j = 1, half do
    freq[j] = 1000 * math.exp(-math.log(10000) * (j - 1) / (half - 1))
  end
  local angle = t:move("b->bj", { j = half }) * dpc.const(freq) -- [b, half]
  return angle:sin():concat(angle:cos(), { dim = 1 })
end

-- t [b] in 0..1 -> [b, width].
function nn.time_embedding(name, t, sines, width)
  return dpc.scope(name, function()
    local h = nn.linear("up", nn.sinusoid(t, sines), width)
    return nn.linear("down", nn.silu(h), width)
  end)
end

-- A residual block on x [b, c, h, w] -> [b, out, h, w]: norm, SiLU, conv,
-- twice; the second norm is scaled and shifted by o.cond [b, k] (Dhariwal and
-- Nichol 2021, table 4).  o.groups: of the norms (8).
function nn.resnet(name, x, out, o)
  o = o or {}
  local groups = o.groups or 8
  return dpc.scope(name, function()
    local scale, shift                                     -- [b, out]
    if o.cond then
      scale = nn.linear("scale", o.cond, out, { init = nn.normal(0.02) })
      shift = nn.linear("shift", o.cond, out, { init = nn.normal(0.02) })
    end
    local h = nn.silu(nn.group_norm("norm1", x, groups))   -- [b, c, h, w]
    h = nn.conv2d("conv1", h, out, 3)                      -- [b, out, h, w]
    h = nn.silu(nn.group_norm("norm2", h, groups, scale, shift))
    h = nn.conv2d("conv2", h, out, 3)
    if x:dim(1) ~= out then
      x = nn.conv2d("skip", x, out, 1)
    end
    return x + h                                           -- [b, out, h, w]
  end)
end

-- Attention among the pixels of x [b, c, h, w], residual; it starts as the
-- identity.
function nn.pixel_attention(name, x, heads, o)
  local c, h = x:dim(1), x:dim(2)
  return dpc.scope(name, function()
    local y = nn.group_norm("norm", x, o and o.groups or 8)
    y = y:move("b c h w -> b (h w) c")                     -- [b, h w, c]
    y = nn.attention("attn", y, heads,
                     { out = nn.zeros, scores = o and o.scores })
    return x + y:move("b (h w) c -> b c h w", { h = h })   -- [b, c, h, w]
  end)
end

---- losses: f32 [] ----

-- Mean squared difference of two values of one shape.
function nn.mse(a, b)
  local d = a - b
  return nn.mean(d * d)
end

-- -sum target log softmax(logit), mean over the batch; logit, target [b, c];
-- rows of target sum to one.
function nn.cross_entropy(logit, target)
  local each = target * nn.log_softmax(logit)              -- [b, c]
  return each:move("bc->") * (-1 / logit:dim(0))
end

-- Share of rows whose largest logit is the target's; logit, one-hot [b, c].
function nn.accuracy(logit, one_hot)
  local mine = (logit * one_hot):move("bc->b")             -- [b]
  return nn.mean(logit:max("bc->b"):le(mine))
end

return nn
