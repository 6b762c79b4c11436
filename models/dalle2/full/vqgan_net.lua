-- vqgan_net.lua -- encoders and decoders of VQGanVAE: convolutions
-- ("resnet"), or patches and a transformer ("vit").

local nn = require "nn"
local layers = require "dalle2.full.layers"
local options = require "dalle2.full.options"

local net = {}
local bare = { bias = false }
local lrelu = nn.leaky_relu

---- resnet ----

local resnet_options = {
  layer_mults = options.listed("size"), num_resnet_blocks = options.each(1),
  resnet_groups = 16, first_conv_kernel_size = 5,
  use_attn = options.each(true), attn_dim_head = 64, attn_heads = 8,
  attn_dropout = options.share(0),
}

-- Bias of scores among n x n pixels by their distances (Liu et al. 2021, Swin
-- V2, 3.3): f32 [heads, n n, n n].
local function position_bias(name, n, dim, heads)
  local grid = {}
  for i = 0, n * n - 1 do
    grid[i + 1] = {}
    for j = 0, n * n - 1 do
      local pair = {}
      for k, d in ipairs{ i // n - j // n, i % n - j % n } do
        local l = math.log(math.abs(d) + 1)
        pair[k] = d < 0 and -l or l
      end
      grid[i + 1][j + 1] = pair
    end
  end
  return dpc.scope(name, function()
    local y = lrelu(layers.linear("net.0.0", dpc.const(grid), dim))
    y = lrelu(layers.linear("net.1.0", y, dim))
    return layers.linear("net.2", y, heads):move("ijh->hij")
  end)
end

-- Pixels of x [b, c, h, h] over themselves, residual.
local function attend(name, x, o)
  local heads, d, n = o.attn_heads, o.attn_dim_head, x:dim(2)
  local c = x:dim(1)
  return dpc.scope(name, function()
    local y = layers.channel_norm("pre_norm", x, "gamma")
    local all = layers.conv("to_qkv", y, 3 * heads * d, 1, bare)
        :move("b (t e d) h w -> b t e d (h w)", { t = 3, e = heads })
    local function part(t)                                 -- [b, e, d, n]
      return all:slice{ dim = 1, at = t, size = 1 }:move("btedn->bedn")
    end
    local score = part(0):dot(part(1), "bedn,bedm->benm") * d ^ -0.5
    score = score + position_bias("cpb", n, c // 4, heads)
    local weight = layers.dropout(nn.softmax(score), o.attn_dropout)
    y = weight:dot(part(2), "benm,bedm->bedn")
        :move("b e d (h w) -> b (e d) h w", { w = n })
    return x + layers.conv("to_out", y, c, 1, bare)
  end)
end

local function glu(x)
  local value, gate = layers.halves(x, 1)
  return value * gate:sigmoid()
end

-- Two of conv, activation and norm, one conv, residual.  The decoder's gate
-- themselves and norm behind; the encoder's norm, then leak.
local function block(name, x, groups, gated)
  local c, at, y = x:dim(1), 0, x
  return dpc.scope(name .. ".net", function()
    for _ = 1, 2 do
      if gated then
        y = glu(layers.conv(tostring(at), y, 2 * c, 3, { pad = 1 }))
        y = layers.group_norm(tostring(at + 2), y, groups)
      else
        y = layers.conv(tostring(at), y, c, 3, { pad = 1 })
        y = lrelu(layers.group_norm(tostring(at + 1), y, groups))
      end
      at = at + 3
    end
    return x + layers.conv(tostring(at), y, c, 1)
  end)
end

-- option `key` of each layer: a list, or a value for the last layer alone.
local function of_layers(o, key, n, otherwise)
  if type(o[key]) == "table" then
    return options.list(o, key, n)
  end
  local list = {}
  for i = 1, n do
    list[i] = i == n and o[key] or otherwise
  end
  return list
end

local resnet = {}
resnet.__index = resnet

function net.resnet(given, dim, channels, n)
  local o = options.take(given, "VQGanVAE: encdec", resnet_options)
  if dim % o.resnet_groups ~= 0 then
    options.fail(o, "resnet_groups", "dim %d is not divisible by "
                 .. "resnet_groups, %d", dim, o.resnet_groups)
  end
  local mults = o.layer_mults
  if not mults then
    mults = {}
    for i = 1, n do
      mults[i] = 2 ^ (i - 1) // 1 | 0
    end
  elseif #mults ~= n then
    options.fail(o, "layer_mults", "%d layer_mults for %d layers", #mults, n)
  end
  local blocks = of_layers(o, "num_resnet_blocks", n, 0)
  local attends = of_layers(o, "use_attn", n, false)
  local layer, before = {}, dim
  for i = 1, n do
    layer[i] = { from = before, to = dim * mults[i], blocks = blocks[i],
                 attends = attends[i] }
    before = dim * mults[i]
  end
  return setmetatable({ o = o, dim = dim, channels = channels, layer = layer,
                        encoded_dim = before }, resnet)
end

-- How much smaller than the picture's sides those of its features are.
function resnet:shrinks() return 2 ^ #self.layer | 0 end

function resnet:encoded_size(n) return n // 2 ^ #self.layer | 0 end

-- x [b, c, h, w] -> [b, encoded_dim, h / 2^n, w / 2^n].
function resnet:encode(x)
  local o, at = self.o, 0
  local function next_name()
    at = at + 1
    return tostring(at - 1)
  end
  return dpc.scope("encoders", function()
    local size = o.first_conv_kernel_size
    x = layers.conv(next_name(), x, self.dim, size, { pad = size // 2 })
    for _, l in ipairs(self.layer) do
      x = lrelu(layers.conv(next_name() .. ".0", x, l.to, 4,
                            { stride = 2, pad = 1 }))
      for _ = 1, l.blocks do
        x = block(next_name(), x, o.resnet_groups, false)
      end
      x = l.attends and attend(next_name(), x, o) or x
    end
    return x
  end)
end

-- Its mirror image; also the filter of the last layer.
function resnet:decode(x)
  local o, at = self.o, 0
  local function next_name()
    at = at + 1
    return tostring(at - 1)
  end
  return dpc.scope("decoders", function()
    for i = #self.layer, 1, -1 do
      local l = self.layer[i]
      for _ = 1, l.blocks do
        x = block(next_name(), x, o.resnet_groups, true)
      end
      x = l.attends and attend(next_name(), x, o) or x
      x = lrelu(layers.conv_transpose(next_name() .. ".0", x, l.from))
    end
    local last = next_name()
    x = layers.conv(last, x, self.channels, 1)
    return x, dpc.scope(last, function()
      return nn.weight("weight", { self.channels, self.dim, 1, 1 })
    end)
  end)
end

---- vit ----

local vit_options = { patch_size = 8, dim_head = 32, heads = 8, ff_mult = 4 }

local vit = {}
vit.__index = vit

function net.vit(given, dim, channels, n)
  local o = options.take(given, "VQGanVAE: encdec", vit_options)
  return setmetatable({ o = o, dim = dim, channels = channels, depth = n,
                        encoded_dim = dim }, vit)
end

function vit:encoded_size(n) return n // self.o.patch_size end
function vit:shrinks() return self.o.patch_size end

-- x [b, n, k] over itself.
local function look(name, x, o)
  local h, d = o.heads, o.dim_head
  return dpc.scope(name, function()
    local all = layers.linear("to_qkv", layers.layer_norm("norm", x),
                              3 * h * d, bare)
        :move("b n (t h d) -> b t h n d", { t = 3, h = h })
    local function part(t)                                 -- [b, h, n, d]
      return all:slice{ dim = 1, at = t, size = 1 }:move("bthnd->bhnd")
    end
    local score = part(0):dot(part(1), "bhnd,bhmd->bhnm") * d ^ -0.5
    local y = nn.softmax(score):dot(part(2), "bhnm,bhmd->bnhd")
        :move("b n h d -> b n (h d)")
    return layers.linear("to_out", y, x:dim(-1))
  end)
end

local function transformer(name, x, o, depth)
  local k = x:dim(-1)
  return dpc.scope(name, function()
    for i = 0, depth - 1 do
      dpc.scope("layers." .. i, function()
        x = x + look("0", x, o)
        x = x + dpc.scope("1", function()
          local y = layers.layer_norm("0", x)
          y = nn.gelu(layers.linear("1", y, k * o.ff_mult, bare))
          return layers.linear("3", y, k, bare)
        end)
      end)
    end
    return layers.layer_norm("norm", x)
  end)
end

-- Patches of x [b, c, h, w], channel fastest, to [b, dim, h / p, w / p].
function vit:encode(x)
  local p, h = self.o.patch_size, x:dim(2) // self.o.patch_size
  return dpc.scope("encoder", function()
    local y = x:move("b c (h p) (w q) -> b (h w) (p q c)", { p = p, q = p })
    y = transformer("2", layers.linear("1", y, self.dim), self.o, self.depth)
    return y:move("b (h w) c -> b c h w", { h = h })
  end)
end

function vit:decode(x)
  local p, h, wide = self.o.patch_size, x:dim(2), 4 * self.dim
  local out = self.channels * p * p
  return dpc.scope("decoder", function()
    local y = x:move("b c h w -> b (h w) c")
    y = transformer("1", y, self.o, self.depth)
    return dpc.scope("2", function()
      y = layers.linear("0", y, wide, bare):tanh()
      y = layers.linear("2", y, out, bare)
      local last = dpc.scope("2", function()
        return nn.weight("weight", { out, wide })
      end)
      return y:move("b (h w) (p q c) -> b c (h p) (w q)",
                    { h = h, p = p, q = p }), last
    end)
  end)
end

net.declared = options.join(resnet_options, vit_options)

return net
