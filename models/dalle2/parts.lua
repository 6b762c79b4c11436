-- parts.lua -- the published models of DALLE2-pytorch, piece by piece, for
-- cases of `dpc eval --cases` (docs/parity.md).
--
-- A part takes the constructor's options, values and arguments of the call by
-- the original's names; t, noise and, where it says so, coins stand in for
-- what the original draws.

local prior_net = require "dalle2.full.prior_net"
local prior = require "dalle2.full.prior"
local unet = require "dalle2.full.unet"
local decoder = require "dalle2.full.decoder"
local lowres = require "dalle2.full.lowres"
local picture = require "dalle2.full.picture"
local options = require "dalle2.full.options"
local kinds = require "kinds"
local train = require "dalle2.full.train"
local xclip = require "dalle2.full.xclip"
local coca = require "dalle2.full.coca"
local adapter = require "dalle2.full.adapter"
local vqgan = require "dalle2.full.vqgan"
local layers = require "dalle2.full.layers"
require "dalle2.full.decoder_sample"

local parts = {}

-- Argument `key` of the call, of that kind; nil where it is absent.
local function argument(call, key, kind)
  local fit, wrong = call[key], nil
  if fit ~= nil then
    fit, wrong = kinds.fit(fit, kind)
  end
  if wrong then
    dpc.fail(("call: \"%s\" %s"):format(key, wrong))
  end
  return fit
end

---- prior ----

-- DiffusionPriorNetwork.forward_with_cond_scale; train: with dropout.
function parts.prior(given, i, call)
  local c = { text_embed = i.text_embed, text_encodings = i.text_encodings,
              self_cond = i.self_cond, text_drop = call.text_cond_drop_prob,
              image_drop = call.image_cond_drop_prob }
  local function run()
    return { out = prior_net.new(given):guided(
        i.image_embed, i.t, c, argument(call, "cond_scale", "number")) }
  end
  return call.train and layers.training(run) or run()
end

-- DiffusionPrior.forward: image_embed as CLIP gives it, not scaled.
function parts.diffusion_prior(given, i)
  local p = prior.new(given)
  local c = p:condition(i.text_embed, i.text_encodings)
  return { loss = p:loss(i.image_embed, c, {
    times = i.t, noise = i.noise, coin = i.self_cond_coin }) }
end

-- DiffusionPrior.p_sample_loop.
function parts.sample(given, i, call)
  local p = prior.new(given)
  local c = p:condition(i.text_embed, i.text_encodings)
  return { out = p:sample(c, call) }
end

---- U-Net, decoder ----

-- Unet.forward_with_cond_scale.
function parts.unet(given, i, call)
  local c = { image_embed = i.image_embed, text_encodings = i.text_encodings,
              lowres_cond_img = i.lowres_cond_img, self_cond = i.self_cond,
              lowres_noise_level = i.lowres_noise_level,
              text_drop = call.text_cond_drop_prob,
              image_drop = call.image_cond_drop_prob }
  return { out = unet.new(given):guided(
      i.x, i.t, c, argument(call, "cond_scale", "number")) }
end

-- Decoder.forward: the loss of one U-Net.
function parts.decoder(given, i, call)
  local d = decoder.new(given)
  return { loss = d:loss(call.unet_number or 1, i.image, {
    image_embed = i.image_embed, text_encodings = i.text_encodings,
  }, { times = i.t, noise = i.noise, coin = i.blur_coin,
       level = i.lowres_noise_level, self_coin = i.self_cond_coin }) }
end

-- DecoderTrainer: one step of one U-Net.  options: the trainer's, and
-- `decoder`, the Decoder's.
function parts.decoder_step(given, i, call)
  local trainer = {}
  for key, value in pairs(given) do
    trainer[key] = value
  end
  trainer.decoder = nil
  local loss = parts.decoder(given.decoder, i, call).loss
  local out = train.step(loss, train.decoder(trainer), call.unet_number)
  out.loss = loss
  return out
end

-- Decoder.sample.
function parts.decoder_sample(given, i, call)
  local d = decoder.new(given)
  local o = setmetatable({ image = i.image, inpaint_image = i.inpaint_image,
                           inpaint_mask = i.inpaint_mask },
                         { __index = call })
  local any = i.image_embed or i.text_encodings
  local b = call.batch_size or any and any:dim(0) or 1
  return { out = d:sample(b, { image_embed = i.image_embed,
                               text_encodings = i.text_encodings }, o) }
end

local lowres_options = {
  downsample_first = true, use_blur = true, blur_prob = options.share(0.5),
  blur_sigma = options.each(0.6), blur_kernel_size = options.each(3),
  use_noise = false, input_image_range = options.maybe("table"),
}

-- LowresConditioner.forward; pictures are not normalized.
function parts.lowres(given, i, call)
  local o = options.take(given, "LowresConditioner", lowres_options)
  local function same(x) return x end
  o.normalize, o.unnormalize = same, same
  o.range = o.input_image_range
  o.blur_sigma = call.blur_sigma or o.blur_sigma
  o.blur_kernel_size = call.blur_kernel_size or o.blur_kernel_size
  local y, level = lowres.new(o):forward(
      i.image, call.downsample_image_size, call.target_image_size,
      { coin = i.blur_coin, level = i.lowres_noise_level })
  return { out = y, level = level }
end

-- resize_image_to.
function parts.resize(_, i, call)
  local n = argument(call, "size", "size")
      or dpc.fail("resize_image_to: \"size\" is missing")
  return { out = call.nearest and picture.nearest(i.image, n)
               or picture.cubic(i.image, n) }
end

---- VQGanVAE ----

-- encode and decode, in eval mode.
function parts.vqgan(given, i)
  local v = vqgan.new(given)
  v:check(i.img)
  local z = v:encode(i.img)
  local y, number = v:decode(z)
  return { z = z, decode = y, indices = number }
end

-- VQGanVAE.forward(return_loss=True), in train mode: the codebook moves.
function parts.vqgan_train(given, i)
  return layers.training(function()
    local loss, y = vqgan.new(given):loss(i.img)
    return { loss = loss, recons = y }
  end)
end

-- VQGanVAE.forward(return_discr_loss=True): img against `recons`.
function parts.vqgan_discriminator(given, i, call)
  return { loss = vqgan.new(given)
               :discriminator_loss(i.img, i.recons, call) }
end

---- CLIP ----

-- x-clip's CLIP.forward(return_loss=True).
function parts.clip(given, i)
  return layers.training(function()
    return { loss = xclip.new(given):loss(i.text, i.image, {
      aug_text = i.aug_text and { i.aug_text },
      aug_image = i.aug_image and { i.aug_image } }) }
  end)
end

-- What the adapter of CLIP gives; `make` as in AdapterConfig.
function parts.clip_adapter(given, i, call)
  local a = adapter.new(call.make or "x-clip", given, call.overrides)
  local out = {}
  if i.text then
    out.text_embed, out.text_encodings = a:embed_text(i.text)
  end
  if i.image then
    out.image_embed = a:embed_image(i.image)
  end
  return out
end

-- CoCa.embed_image of the tokens of an image encoder.
function parts.coca_image(given, i, call)
  return { out = coca.new(given, call.overrides):embed_image(i.image) }
end

-- The adapter of OpenAI's CLIP; options: that CLIP's constructor's.
function parts.openai_adapter(given, i, call)
  local o = {}
  for key, value in pairs(given) do
    o[key] = value
  end
  o.eos_id = call.eos_id
  return parts.clip_adapter(o, i, { make = "openai" })
end

return { parts = parts }
