-- autoencoder.lua -- the autoencoder of Qwen-Image, for one frame.
--
-- It is made for films: its filters are [out, in, 3, 3, 3] and see two frames
-- of the past, which for a picture are zeros.  So each is a filter of two
-- dimensions, its last slice in time, and the convolutions along time alone
-- (`time_conv`) see nothing to do; their weights stay in the checkpoint.
-- Names are those of `AutoencoderKLQwenImage`, options of its config.json.
--
-- In the shapes: b pictures, c channels, h rows, w columns.

local nn = require "nn"
local options = require "options"

local autoencoder = {}

local defaults = {
  base_dim = 96, z_dim = 16, dim_mult = { 1, 2, 4, 4 }, num_res_blocks = 2,
  attn_scales = {},
  temperal_downsample = { false, true, true, least = 0 }, -- none: one stage
  dropout = 0.0, input_channels = 3,
  latents_mean = { -0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653,
                   -0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632,
                   -0.1922, -0.9497, 0.2503, -0.2921 },
  latents_std = { 2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052,
                  2.0743, 3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253,
                  2.8251, 1.9160 },
}

-- The options o made whole; a key that nobody takes is an error.
function autoencoder.options(o)
  local full = options.whole("autoencoder", o, "AutoencoderKLQwenImage",
                             defaults, {})
  if #full.temperal_downsample ~= #full.dim_mult - 1 then
    options.fail("autoencoder", o, o and o.dim_mult and "dim_mult"
                 or "temperal_downsample", "%d of temperal_downsample for %d "
                 .. "of dim_mult; one less is wanted",
                 #full.temperal_downsample, #full.dim_mult)
  end
  for _, key in ipairs{ "latents_mean", "latents_std" } do
    if #full[key] ~= full.z_dim then
      options.fail("autoencoder", o, o and o[key] and key or "z_dim",
                   "%s has %d numbers; z_dim is %d", key, #full[key],
                   full.z_dim)
    end
  end
  return full
end

---- layers ----

-- x [b, c, h, w] by a filter of a film [out, c, size, size, size] -> [b, out,
-- h, w]; frames, the filter's length in time, is `size` too unless given.
local function conv(name, x, out, size, frames)
  frames = frames or size
  local c = x:dim(1)
  return dpc.scope(name, function()
    local w = nn.weight("weight", { out, c, frames, size, size },
                        nn.lecun(c * frames * size * size))
    local last = w:slice{ dim = 2, at = frames - 1, size = 1 }
        :move("oczkl->ockl")
    local y = x:conv(last, { stride = 1, pad = size // 2 })
    return y + nn.like(nn.weight("bias", { out }), "o->bohw", y)
  end)
end

-- The same of a picture: filter [out, c, size, size].
local function conv2d(name, x, out, size, o)
  local c = x:dim(1)
  return dpc.scope(name, function()
    local w = nn.weight("weight", { out, c, size, size },
                        nn.lecun(c * size * size))
    local y = x:conv(w, { stride = o and o.stride or 1,
                          pad = o and o.pad or size // 2 })
    return y + nn.like(nn.weight("bias", { out }), "o->bohw", y)
  end)
end

-- x over the length of its channels, times c^0.5 and a gain [c, 1, 1(, 1)].
local function norm(name, x, film)
  local c = x:dim(1)
  local length = (x * x):move("bchw->bhw"):sqrt():maximum(1e-12)
  return dpc.scope(name, function()
    local gain = film and nn.weight("gamma", { c, 1, 1, 1 }, nn.ones)
            :move("cxyz->c")
        or nn.weight("gamma", { c, 1, 1 }, nn.ones):move("cxy->c")
    return x / nn.like(length, "bhw->bchw", x) * c ^ 0.5
        * nn.like(gain, "c->bchw", x)
  end)
end

local function resnet(name, x, out)
  return dpc.scope(name, function()
    local h = conv("conv1", nn.silu(norm("norm1", x, true)), out, 3)
    h = conv("conv2", nn.silu(norm("norm2", h, true)), out, 3)
    if x:dim(1) ~= out then
      x = conv("conv_shortcut", x, out, 1)
    end
    return x + h                                           -- [b, out, h, w]
  end)
end

-- One head among the pixels, residual.
local function attention(name, x)
  local c, h = x:dim(1), x:dim(2)
  return dpc.scope(name, function()
    local p = conv2d("to_qkv", norm("norm", x), 3 * c, 1)
        :move("b (t c) h w -> t b (h w) c", { t = 3 })
    local function one(i)                                  -- [b, n, c]
      return p:slice{ dim = 0, at = i, size = 1 }:move("tbnc->bnc")
    end
    local logit = one(0):dot(one(1), "bnc,bmc->bnm") * c ^ -0.5
    local y = nn.softmax(logit):dot(one(2), "bnm,bmc->bnc")
    return x + conv2d("proj", y:move("b (h w) c -> b c h w", { h = h }), c, 1)
  end)
end

local function middle(x)
  local c = x:dim(1)
  return dpc.scope("mid_block", function()
    x = resnet("resnets.0", x, c)
    return resnet("resnets.1", attention("attentions.0", x), c)
  end)
end

-- The weights along time, which one picture never meets.
local function unused(out, c)
  dpc.scope("time_conv", function()
    nn.weight("weight", { out, c, 3, 1, 1 }, nn.lecun(3 * c))
    nn.weight("bias", { out })
  end)
end

-- [b, c, h, w] -> [b, c, h / 2, w / 2], a zero at the right and below.
local function shrink(name, x, film)
  local b, c, h, w = table.unpack(x:dims())
  x = x:concat(dpc.const(0, { b, c, h, 1 }), { dim = 3 })
      :concat(dpc.const(0, { b, c, 1, w + 1 }), { dim = 2 })
  return dpc.scope(name, function()
    if film then
      unused(c, c)
    end
    return conv2d("resample.1", x, c, 3, { stride = 2, pad = 0 })
  end)
end

-- [b, c, h, w] -> [b, c / 2, 2 h, 2 w].
local function grow(name, x, film)
  local c = x:dim(1)
  return dpc.scope(name, function()
    if film then
      unused(2 * c, c)
    end
    return conv2d("resample.1", nn.nearest(x, 2), c // 2, 3)
  end)
end

---- both halves ----

local function holds(list, x)
  for _, y in ipairs(list) do
    if x == y then
      return true
    end
  end
end

local function encoder(o, x)
  return dpc.scope("encoder", function()
    x = conv("conv_in", x, o.base_dim, 3)
    local n, scale = 0, 1.0
    local function named()
      n = n + 1
      return "down_blocks." .. n - 1
    end
    for i, m in ipairs(o.dim_mult) do
      for _ = 1, o.num_res_blocks do
        x = resnet(named(), x, o.base_dim * m)
        if holds(o.attn_scales, scale) then
          x = attention(named(), x)
        end
      end
      if i < #o.dim_mult then
        x = shrink(named(), x, o.temperal_downsample[i])
        scale = scale / 2
      end
    end
    x = nn.silu(norm("norm_out", middle(x), true))
    return conv("conv_out", x, 2 * o.z_dim, 3)
  end)
end

local function decoder(o, z)
  local n = #o.dim_mult
  return dpc.scope("decoder", function()
    local x = middle(conv("conv_in", z, o.base_dim * o.dim_mult[n], 3))
    for i = 0, n - 1 do
      dpc.scope("up_blocks." .. i, function()
        for k = 0, o.num_res_blocks do
          x = resnet("resnets." .. k, x, o.base_dim * o.dim_mult[n - i])
        end
        if i < n - 1 then
          x = grow("upsamplers.0", x, o.temperal_downsample[n - 1 - i])
        end
      end)
    end
    x = nn.silu(norm("norm_out", x, true))
    return conv("conv_out", x, o.input_channels, 3)
  end)
end

-- Pictures [b, 3, h, w] in -1..1 -> mean and log variance of the posterior,
-- [b, z, h / 8, w / 8] each.
function autoencoder.posterior(o, x)
  local y = conv("quant_conv", encoder(o, x), 2 * o.z_dim, 1)
  local z = o.z_dim
  return y:slice{ dim = 1, at = 0, size = z },
      y:slice{ dim = 1, at = z, size = z }
end

-- Its inverse: z [b, z, h, w] -> pictures [b, 3, 8 h, 8 w] in -1..1.
function autoencoder.decoded(o, z)
  local x = decoder(o, conv("post_quant_conv", z, o.z_dim, 1))
  return x:maximum(-1):minimum(1)
end

---- latents as the transformer wants them ----

local function constants(o, z)
  return nn.like(dpc.const(o.latents_mean), "c->bchw", z),
      nn.like(dpc.const(o.latents_std), "c->bchw", z)
end

-- z to mean 0 and variance 1 by the constants of each channel; and back.
function autoencoder.normalised(o, z)
  local mean, std = constants(o, z)
  return (z - mean) / std
end

function autoencoder.denormalised(o, z)
  local mean, std = constants(o, z)
  return z * std + mean
end

-- A draw from the posterior: what diffusers' script trains on; DiffSynth takes
-- the mean.
function autoencoder.drawn(mean, log_variance)
  local std = (log_variance:maximum(-30):minimum(20) * 0.5):exp()
  return mean + std * dpc.random("normal", mean:dims())
end

return autoencoder
