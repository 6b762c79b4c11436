-- layers.lua -- layers whose weights bear the names, and the shapes, of
-- PyTorch's state dicts: "weight" [out, in], "bias", "g".
--
-- A layer takes its name first, as in nn.lua; a name may have several parts,
-- "to_out.0".  In the shapes: b batch, n and m tokens, k width, c channels,
-- h w picture.  Names "" put the weights into the scope that is open.

local nn = require "nn"

local layers = {}

local ALPHABET = "abcdefghijklmnop"

-- Letters of all dimensions of x, and of all but the last.
local function letters(x)
  local all = ALPHABET:sub(1, #x:dims())
  return all, all:sub(1, -2)
end

function layers.within(name, fn)
  if name == "" then
    return fn()
  end
  return dpc.scope(name, fn)
end

-- Weights of Linear and Conv, and their biases, start uniform in
-- +-fan^-0.5.
local function uniform(fan) return nn.uniform(fan ^ -0.5) end

-- x [..., k] -> [..., out].  bias=false, init.
function layers.linear(name, x, out, o)
  o = o or {}
  local k = x:dim(-1)
  local all, row = letters(x)
  local sig = ("%s,z%s->%sz"):format(all, all:sub(-1), row)
  return layers.within(name, function()
    local w = nn.weight("weight", { out, k }, o.init or uniform(k))
    local y = x:dot(w, sig)                                -- [..., out]
    if o.bias == false then
      return y
    end
    return y + nn.weight("bias", { out }, o.init or uniform(k))
  end)
end

-- w [o, c, k, l], each filter to mean 0 and variance 1 (Qiao et al. 2019).
local function standardized(w)
  local d = w - nn.like(nn.mean(w, "ockl->o"), "o->ockl", w)
  local scale = (nn.mean(d * d, "ockl->o") + 1e-5):rsqrt() -- [o]
  return d * nn.like(scale, "o->ockl", w)
end

-- x [b, c, h, w] -> [b, out, h', w'].  stride, pad (0), bias=false, init,
-- standardized=true, groups (1).
function layers.conv(name, x, out, size, o)
  o = o or {}
  local c = x:dim(1) // (o.groups or 1)
  local fan = c * size * size
  return layers.within(name, function()
    local w = nn.weight("weight", { out, c, size, size },
                        o.init or uniform(fan))
    if o.standardized then
      w = standardized(w)
    end
    local y = x:conv(w, { stride = o.stride or 1, pad = o.pad or 0,
                          g = o.groups or 1 })               -- [b, out, h', w']
    if o.bias == false then
      return y
    end
    local b = nn.weight("bias", { out }, o.init or uniform(fan))
    return y + nn.like(b, "o->bohw", y)
  end)
end

-- The adjoint of `conv`: x [b, c, h, w] -> [b, out, 2 h, 2 w], filters of 4,
-- stride 2.
function layers.conv_transpose(name, x, out)
  local c, h, w = x:dim(1), x:dim(2), x:dim(3)
  local shape = dpc.const(0, { x:dim(0), out, 2 * h, 2 * w })
  return layers.within(name, function()
    local filter = nn.weight("weight", { c, out, 4, 4 }, uniform(16 * out))
    local y = x:conv_dx(filter, shape, { stride = 2, pad = 1 })
    return y + nn.like(nn.weight("bias", { out }, uniform(16 * out)),
                       "o->bohw", y)
  end)
end

-- Rows of "weight" [words, width] for ids i32 [...] -> [..., width].
function layers.embedding(name, ids, words, width)
  return layers.within(name, function()
    return nn.weight("weight", { words, width }, nn.normal(1)):take(ids)
  end)
end

---- training ----

local training = false

local function restore(was, ...)
  training = was
  return ...
end

-- Dropout in fn drops; elsewhere it is the identity.
function layers.training(fn)
  local was = training
  training = true
  return restore(was, fn())
end

-- A frozen network in fn, whatever is trained around it.
function layers.evaluating(fn)
  local was = training
  training = false
  return restore(was, fn())
end

-- Another model's network in fn: frozen, evaluated, its weights outside of
-- every scope that is open.
function layers.foreign(fn)
  return nn.frozen(function()
    return dpc.scope(nil, function() return layers.evaluating(fn) end)
  end)
end

function layers.is_training() return training end

function layers.dropout(x, p)
  if p == 0 or not training then
    return x
  end
  return nn.dropout(x, p)
end

---- norms ----

-- x [..., k], each row to mean 0 and variance 1.
local function centred(x)
  local all, row = letters(x)
  local fold, back = all .. "->" .. row, row .. "->" .. all
  local d = x - nn.like(nn.mean(x, fold), back, x)         -- [..., k]
  local scale = (nn.mean(d * d, fold) + 1e-5):rsqrt()      -- [...]
  return d * nn.like(scale, back, x)
end

-- x [..., k] with gain "g" (or o.gain) and no bias.  stable=true: each row is
-- divided by its largest element first, sign and all, through which no
-- gradient flows.
function layers.gain_norm(name, x, o)
  return layers.within(name, function()
    local g = nn.weight(o and o.gain or "g", { x:dim(-1) }, nn.ones)
    if o and o.stable then
      local all, row = letters(x)
      local top = x:max(all .. "->" .. row):stop()         -- [...]
      x = x / nn.like(top, row .. "->" .. all, x)
    end
    return centred(x) * g
  end)
end

-- x [..., k] with "weight" and "bias".
function layers.layer_norm(name, x)
  local k = { x:dim(-1) }
  return layers.within(name, function()
    return centred(x) * nn.weight("weight", k, nn.ones)
        + nn.weight("bias", k)
  end)
end

-- x [b, c, h, w], each pixel over its channels; gain "g", or another name,
-- [1, c, 1, 1].
function layers.channel_norm(name, x, gain)
  return layers.within(name, function()
    local d = x - nn.like(nn.mean(x, "bchw->bhw"), "bhw->bchw", x)
    local scale = (nn.mean(d * d, "bchw->bhw") + 1e-5):rsqrt() -- [b, h, w]
    return d * nn.like(scale, "bhw->bchw", x)
        * nn.weight(gain or "g", { 1, x:dim(1), 1, 1 }, nn.ones)
  end)
end

-- x [b, c, h, w] in `groups` runs of channels, with "weight" and "bias".
function layers.group_norm(name, x, groups)
  local c = x:dim(1)
  if c % groups ~= 0 then
    dpc.fail(("group norm: %d channels in %d groups do not divide")
             :format(c, groups))
  end
  return layers.within(name, function()
    local g = x:move("b (g c) h w -> b g c h w", { g = groups })
    local d = g - nn.like(nn.mean(g, "bgchw->bg"), "bg->bgchw", g)
    local inv = (nn.mean(d * d, "bgchw->bg") + 1e-5):rsqrt() -- [b, g]
    local y = (d * nn.like(inv, "bg->bgchw", g))
        :move("b g c h w -> b (g c) h w")                  -- [b, c, h, w]
    return y * nn.like(nn.weight("weight", { c }, nn.ones), "c->bchw", x)
        + nn.like(nn.weight("bias", { c }), "c->bchw", x)
  end)
end

---- without weights ----

-- Two halves of dimension `dim`.
function layers.halves(x, dim)
  local n = x:dim(dim) // 2
  return x:slice{ dim = dim, at = 0, size = n },
      x:slice{ dim = dim, at = n, size = n }
end

-- a [b, n, k] and more of them, one behind the other.
function layers.tokens(a, ...)
  for _, b in ipairs{ ... } do
    a = a:concat(b, { dim = 1 })
  end
  return a
end

-- The first n tokens of x [b, m, k], or all, if there are fewer.
function layers.first(x, n)
  return x:dim(1) <= n and x or x:slice{ dim = 1, at = 0, size = n }
end

-- t f32 [b] -> [b, width]: sines, then cosines, of t at frequencies
-- 1 .. 1/10000.
function layers.sinusoid(t, width)
  local half, freq = width // 2, {}
  if half < 2 then
    dpc.fail(("sinusoidal embedding: width %d; at least 4, since "
              .. "frequencies are spaced by width / 2 - 1"):format(width))
  end
  for j = 1, half do
    freq[j] = math.exp(-math.log(10000) * (j - 1) / (half - 1))
  end
  local angle = t:move("b->bj", { j = half }) * dpc.const(freq) -- [b, half]
  return angle:sin():concat(angle:cos(), { dim = 1 })
end

-- x as f32, whatever it was.
function layers.real(x)
  return x:dtype() == "f32" and x or x:cast("f32")
end

function layers.whole(x)
  return x:dtype() == "i32" and x or x:cast("i32")
end

-- x where keep [b] is 1, the learned `null` [1, ...] in its place where 0.
-- keep may be a number: nothing is drawn for 0 and 1.  A null that is never
-- taken has a gradient of zeros, and so its weight decays, as the original's.
function layers.or_null(keep, x, null)
  local rest = ALPHABET:sub(2, #x:dims())
  local other = null:move("z" .. rest .. "->a" .. rest, { a = x:dim(0) })
  if keep == 0 then
    return other
  elseif keep == 1 then
    return dpc.const(1, x:dims()):where(x, other)
  end
  return nn.rows(keep, x):where(x, other)
end

-- 1 with probability 1 - drop for each of b samples: f32 [b]; a plain number
-- where that is certain.
function layers.keep(b, drop)
  if drop == 0 or drop == 1 then
    return 1 - drop
  end
  return dpc.random("uniform", { b }):lt(1 - drop)         -- [b]
end

-- 1 for tokens of x [b, n, k] that are not all zeros: [b, n].
function layers.present(x)
  return x:abs():max("bnk->bn"):step()
end

return layers
