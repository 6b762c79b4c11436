-- layers.lua -- the layers that Qwen-Image is made of, with weights as the
-- original keeps them: `NAME.weight` [out, in] and `NAME.bias` [out].
--
-- A linear layer whose name ends as one of the adapter's targets does gets a
-- low-rank path beside it (Hu et al. 2021, LoRA, 4.1): y = W x + s B A x, with
-- W frozen, A [rank, in] random and B [out, rank] zero, so that training
-- starts at what the base computes.

local nn = require "nn"
local kinds = require "kinds"

local layers = {}

---- adapters ----

-- The kinds of layers that published adapters of this model change.
layers.targets = "to_q,to_k,to_v,add_q_proj,add_k_proj,add_v_proj,to_out.0,"
    .. "to_add_out,img_mlp.net.2,img_mod.1,txt_mlp.net.2,txt_mod.1"

local adapter                          -- nil: none

local function fail(form, ...) dpc.fail(("lora: " .. form):format(...)) end

-- The names in o.targets, and that rank and alpha can scale anything.
local function adapter_of(o)
  local list = {}
  for t in (o.targets or layers.targets):gmatch("[^,%s]+") do
    list[#list + 1] = t
  end
  if #list == 0 then
    fail("targets \"%s\": names of layers are wanted", o.targets)
  end
  local rank, wrong = kinds.fit(o.rank, "size")
  if not rank then
    fail("rank (r) %s", wrong)
  elseif o.alpha ~= nil and not (kinds.fit(o.alpha, "number") and o.alpha > 0)
  then
    fail("alpha (lora_alpha) is %s; a number above 0 is wanted",
         tostring(o.alpha))
  end
  return { rank = rank, alpha = o.alpha, key = o.key, targets = list,
           hit = {}, seen = {} }
end

-- Each target was the end of some layer's name.
local function targets_check(a)
  for _, t in ipairs(a.targets) do
    if not a.hit[t] then
      local near = dpc.near(t, a.seen)
      fail("target \"%s\" is the end of no layer's name%s", t, near
           and ("; did you mean \"%s\"?"):format(near) or "")
    end
  end
end

-- Linear layers in fn are adapted: o.rank, o.alpha (the rank: s = 1),
-- o.targets, ends of names with commas between, o.key: "default" in
-- "lora_A.default.weight" (none: "lora_A.weight").
function layers.adapted(o, fn)
  local was = adapter
  adapter = adapter_of(o)
  return (function(...)
    targets_check(adapter)
    adapter = was
    return ...
  end)(fn())
end

-- Ends of a layer's name, for "did you mean"; each once.
local function ends_keep(name)
  local last = name:gsub("^.*transformer_blocks%.%d+%.", "")
      :gsub("^attn%.", "")
  if not adapter.seen[last] then
    adapter.seen[last] = true
    adapter.seen[#adapter.seen + 1] = last
  end
end

-- Does a layer's whole name end with one of the targets, at a dot?
local function is_target(name)
  local any = false
  ends_keep(name)
  for _, t in ipairs(adapter.targets) do
    if name == t or name:sub(-#t - 1) == "." .. t then
      adapter.hit[t], any = true, true
    end
  end
  return any
end

local letters = "abcdefgh"

-- x [..., in] times w [out, in]; only the first `rows` of w, where given.
local function product(x, w, rows)
  local lead = letters:sub(1, #x:dims() - 1)
  if rows then
    w = w:slice{ dim = 0, at = 0, size = rows }
  end
  return x:dot(w, lead .. "k,mk->" .. lead .. "m")         -- [..., out]
end

-- What the adapter adds to x [..., in] -> [..., out].
local function low_rank(x, out, rows)
  local k, key = x:dim(-1), adapter.key and "." .. adapter.key or ""
  local a = dpc.param("lora_A" .. key .. ".weight", { adapter.rank, k },
                      { init = nn.uniform(k ^ -0.5) })     -- [r, in]
  local b = dpc.param("lora_B" .. key .. ".weight", { out, adapter.rank })
  return product(product(x, a), b, rows)
      * ((adapter.alpha or adapter.rank) / adapter.rank)
end

---- linear ----

-- x [..., in] -> [..., out]; o.init: of weight and bias, uniform in +- in^-0.5
-- as PyTorch has it; o.rows: only the first so many of the outputs are asked
-- for, of a layer that is made whole.
function layers.linear(name, x, out, o)
  o = o or {}
  local k, rows = x:dim(-1), o.rows
  local init = o.init or nn.uniform(k ^ -0.5)
  return dpc.scope(name, function()
    local w = nn.weight("weight", { out, k }, init)        -- [out, in]
    local b = nn.weight("bias", { out }, init)
    local y = product(x, w, rows)
        + (rows and b:slice{ dim = 0, at = 0, size = rows } or b)
    if adapter and is_target(w:name():sub(1, -#".weight" - 1)) then
      y = y + low_rank(x, out, rows)
    end
    return y                                               -- [..., out]
  end)
end

-- x [b, ..., n d] -> [b, ..., n, d]: what was made in one go, apart.
function layers.apart(x, n)
  local lead = letters:sub(1, #x:dims() - 1)
  return x:move(lead .. "(nm)->" .. lead .. "nm", { n = n })
end

-- Part i (from 0) of x [b, n, d] -> [b, d].
function layers.part(x, i)
  return x:slice{ dim = 1, at = i, size = 1 }:move("bnd->bd")
end

---- norms over the last dimension ----

local function row_of(x)
  local all = letters:sub(1, #x:dims())
  local row = all:sub(1, -2)
  return all .. "->" .. row, row .. "->" .. all
end

-- x by the root of its mean square, times a gain (Zhang and Sennrich 2019).
function layers.rms_norm(name, x)
  local fold, back = row_of(x)
  local scale = (nn.mean(x * x, fold) + 1e-6):rsqrt()      -- [...]
  return dpc.scope(name, function()
    return x * nn.like(scale, back, x)
        * nn.weight("weight", { x:dim(-1) }, nn.ones)
  end)
end

-- x to mean 0 and variance 1, nothing learned (Ba et al. 2016).
function layers.norm(x)
  local fold, back = row_of(x)
  local d = x - nn.like(nn.mean(x, fold), back, x)         -- [..., k]
  return d * nn.like((nn.mean(d * d, fold) + 1e-6):rsqrt(), back, x)
end

---- activations: what "gelu-approximate" is, by who reads the weights ----

layers.activation = {
  -- By tanh (Hendrycks and Gimpel 2016): what the model was released with.
  diffusers = function(x)
    local c = (2 / math.pi) ^ 0.5
    return x * 0.5 * (((x + x * x * x * 0.044715) * c):tanh() + 1)
  end,
  -- By a sigmoid (the same paper's other one).
  diffsynth = function(x)
    return x * (x * 1.702):sigmoid()
  end,
}

return layers
