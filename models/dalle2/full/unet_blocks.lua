-- unet_blocks.lua -- what U-Nets of DALLE2-pytorch are made of: residual
-- blocks, ways down and up, convolutions of several widths.
--
-- Shapes: b batch, c channels, h w picture, k width of a condition.

local nn = require "nn"
local along = require "along"
local layers = require "dalle2.full.layers"
local attention = require "dalle2.full.attention"

local blocks = {}

-- conv 3x3, group norm, times (1 + scale) plus shift [b, out], SiLU.
-- x [b, c, h, w] -> [b, out, h, w].  groups, standardized, scale, shift.
function blocks.block(name, x, out, o)
  return dpc.scope(name, function()
    local y = layers.conv("project", x, out, 3,
                          { pad = 1, standardized = o.standardized })
    y = layers.group_norm("norm", y, o.groups or 8)        -- [b, out, h, w]
    if o.scale then
      y = y * nn.like(o.scale + 1, "bc->bchw", y)
          + nn.like(o.shift, "bc->bchw", y)
    end
    return nn.silu(y)
  end)
end

-- Pixels of x [b, c, h, w] look at context [b, m, k], residual.
local function look(x, context, cosine)
  local flat = x:move("b c h w -> b (h w) c")
  local y = attention.cross("cross_attn", flat, context, cosine) + flat
  return y:move("b (h w) c -> b c h w", { h = x:dim(2) })
end

-- x [b, c, h, w] -> [b, out, h, w].
--   time [b, k]; context [b, m, k'] or nil; groups, standardized, cosine
function blocks.resnet(name, x, out, o)
  return dpc.scope(name, function()
    local scale, shift = layers.halves(
        layers.linear("time_mlp.1", nn.silu(o.time), 2 * out), 1)
    local same = { groups = o.groups, standardized = o.standardized }
    local h = blocks.block("block1", x, out, {
      groups = o.groups, standardized = o.standardized,
      scale = scale, shift = shift })
    if o.context then
      h = look(h, o.context, o.cosine)
    end
    h = blocks.block("block2", h, out, same)
    return h + (x:dim(1) == out and x or layers.conv("res_conv", x, out, 1))
  end)
end

-- Convolutions of several widths side by side: the narrowest gets half of the
-- channels, the next a quarter, the widest what is left (CrossFormer, Wang et
-- al. 2021).  x [b, c, h, w] -> [b, out, h / stride, w / stride].
function blocks.cross_embed(name, x, out, sizes, stride)
  sizes = table.move(sizes, 1, #sizes, 1, {})
  table.sort(sizes)
  return dpc.scope(name, function()
    local y, left = nil, out
    for i, size in ipairs(sizes) do
      if size % 2 ~= stride % 2 then
        dpc.fail(("cross embedding: kernel %d and stride %d are not both even "
                  .. "or odd"):format(size, stride))
      end
      local share = i < #sizes and out // 2 ^ i or left
      share = math.tointeger(share)
      local part = layers.conv("convs." .. i - 1, x, share, size, {
        stride = stride, pad = (size - stride) // 2 })
      y, left = y and y:concat(part, { dim = 1 }) or part, left - share
    end
    return y
  end)
end

-- Half the sides.  cross: kernel sizes, or nil for space-to-depth.
function blocks.down(name, x, out, cross)
  if x:dim(2) % 2 ~= 0 or x:dim(3) % 2 ~= 0 then
    dpc.fail(("U-Net: a stage of %d x %d pixels cannot be halved; sides of "
              .. "pictures are divisible by 2 once a downsampling")
             :format(x:dim(2), x:dim(3)))
  end
  if cross then
    return blocks.cross_embed(name, x, out, cross, 2)
  end
  return layers.conv(name .. ".1", nn.space_to_depth(x, 2), out, 1)
end

-- The four filters that make one pixel's square start equal (Aitken et al.
-- 2017).  [4 out, c, 1, 1].
local function square(dims)
  local fan = dims[2] * dims[3] * dims[4]
  local few = { dims[1] // 4, dims[2], dims[3], dims[4] }
  return nn.kaiming(fan)(few):move("ockl->(or)ckl", { r = 4 })
end

-- Twice the sides.  shuffle: by depth-to-space, else nearest and a conv.
function blocks.up(name, x, out, shuffle)
  if not shuffle then
    return layers.conv(name .. ".1", nn.nearest(x, 2), out, 3, { pad = 1 })
  end
  local y = dpc.scope(name .. ".net.0", function()
    local dims = { 4 * out, x:dim(1), 1, 1 }
    local z = x:conv(nn.weight("weight", dims, square))
    return z + nn.like(nn.weight("bias", { 4 * out }), "o->bohw", z)
  end)
  return nn.depth_to_space(nn.silu(y), 2)
end

-- x [b, c, h, w] and what stages gave, each resized to that and narrowed to
-- `out` channels, side by side (U-Net squared, Qin et al. 2020).
function blocks.combine(name, x, maps, out)
  return dpc.scope(name, function()
    local h, w, y = x:dim(2), x:dim(3), x
    for i, map in ipairs(maps) do
      if map:dim(3) ~= w then
        map = along.cubic(along.cubic(map, 2, h), 3, w)
      end
      y = y:concat(blocks.block("fmap_convs." .. i - 1, map, out, {}),
                   { dim = 1 })
    end
    return y
  end)
end

return blocks
