-- vqgan.lua -- VQGanVAE: pictures to a grid of codes and back (Esser et al.
-- 2021), with a patch discriminator and VGG's idea of likeness.
--
-- Shapes: b batch, c channels, h w picture.

local nn = require "nn"
local layers = require "dalle2.full.layers"
local options = require "dalle2.full.options"
local net = require "dalle2.full.vqgan_net"
local gan = require "dalle2.full.vqgan_gan"
local quantizer = require "dalle2.full.vq"

local vq_options = {
  codebook_dim = 256, codebook_size = 512, decay = 0.8,
  commitment_weight = 1.0, kmeans_init = true, use_cosine_sim = true,
  eps = 1e-5, kmeans_iters = 10, threshold_ema_dead_code = 0,
}

local own_options = {
  dim = options.size, image_size = options.size, channels = 3,
  layers = 4, l2_recon_loss = false, use_hinge_loss = true,
  use_vgg_and_gan = true, vae_type = "resnet", discr_layers = 4,
}

local vqgan = {}
vqgan.__index = vqgan

-- `given` apart: what begins with "vq_", with "encdec_", and the rest; lines
-- of the config stay with the keys.
local function apart(given)
  local part = { vq_ = {}, encdec_ = {}, [""] = {} }
  for key, value in pairs(given) do
    local prefix = key:match("^vq_") or key:match("^encdec_") or ""
    part[prefix][key:sub(#prefix + 1)] = value
  end
  for prefix, keywords in pairs(part) do
    options.descends(keywords, given, prefix)
  end
  return part
end

-- given: the constructor's keywords; scope: of its weights, "": the open one.
local function new(given, scope)
  local part = apart(given)
  local o = options.take(part[""], "VQGanVAE", own_options)
  local make = net[o.vae_type]
  if not make then
    options.fail(o, "vae_type", "vae_type \"%s\" is neither \"resnet\" nor "
                 .. "\"vit\"", o.vae_type)
  end
  local enc_dec = make(part.encdec_, o.dim, o.channels, o.layers)
  if o.image_size % enc_dec:shrinks() ~= 0 then
    options.fail(o, "image_size", "image_size is %d; a multiple of %d is "
                 .. "wanted", o.image_size, enc_dec:shrinks())
  end
  return setmetatable({
    o = o, enc_dec = enc_dec, encoded_dim = enc_dec.encoded_dim,
    scope = scope or "",
    vq = quantizer.new(options.take(part.vq_, "VQGanVAE: vq", vq_options)),
  }, vqgan)
end

function vqgan:encoded_size(n)
  return self.enc_dec:encoded_size(n)
end

-- x [b, c, h, w] -> features before they are quantized.
function vqgan:encode(x)
  return layers.within(self.scope, function()
    return dpc.scope("enc_dec", function() return self.enc_dec:encode(x) end)
  end)
end

-- Features -> picture; numbers of codes f32 [b, h, w], commitment loss f32
-- [], and the weight of the last layer.
function vqgan:decode(x)
  return layers.within(self.scope, function()
    local q, number, loss = dpc.scope("vq", function()
      return self.vq:forward(x)
    end)
    local y, last = dpc.scope("enc_dec", function()
      return self.enc_dec:decode(q)
    end)
    return y, number, loss, last
  end)
end

function vqgan:check(x)
  local o = self.o
  if x:dim(1) ~= o.channels or x:dim(2) ~= o.image_size
      or x:dim(3) ~= o.image_size then
    dpc.fail(("VQGanVAE: pictures [%d, %d, %d]; channels is %d and image_size "
              .. "%d"):format(x:dim(1), x:dim(2), x:dim(3), o.channels,
                              o.image_size))
  end
end

-- The autoencoder's loss f32 [], and the picture drawn again.  Without VGG
-- and GAN that is likeness alone, with no commitment loss, as in the original.
function vqgan:loss(x)
  local o = self.o
  self:check(x)
  if o.use_vgg_and_gan and o.image_size < 32 then
    options.fail(o, "image_size", "image_size is %d; VGG (use_vgg_and_gan) "
                 .. "halves the sides five times: 32 or more is wanted",
                 o.image_size)
  end
  local y, _, commit, last = self:decode(self:encode(x))
  local d = y - x
  local likeness = nn.mean(o.l2_recon_loss and d * d or d:abs())
  if not o.use_vgg_and_gan then
    return likeness, y
  end
  local perceived = nn.mse(gan.vgg(x), gan.vgg(y))
  local fooled = gan.generator_loss(o, gan.judge(o, y))
  return likeness + perceived + commit
      + fooled * gan.balance(perceived, fooled, last), y
end

-- The discriminator's loss on x and what became of it, f32 [].
-- o: add_gradient_penalty (true).
function vqgan:discriminator_loss(x, y, more)
  return gan.loss(self.o, x, y:stop(), more)
end

local declared = {}
for prefix, list in pairs{
  [""] = own_options, vq_ = vq_options, encdec_ = net.declared,
} do
  for key, rule in pairs(list) do
    declared[prefix .. key] = rule
  end
end

return { new = new, declared = declared }
