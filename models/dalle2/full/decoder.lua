-- decoder.lua -- Decoder: a cascade of U-Nets, from a CLIP image embedding to
-- a picture, and the losses that train one of them at a time.
--
-- The first draws a small picture from the embedding; each of the others
-- draws a larger one from the one before.  Sampling: decoder_sample.lua.
-- Pictures come in 0 .. 1 and are diffused in -1 .. 1.
-- Shapes: b batch, c channels, h w picture.

local nn = require "nn"
local kinds = require "kinds"
local layers = require "dalle2.full.layers"
local options = require "dalle2.full.options"
local picture = require "dalle2.full.picture"
local schedule = require "dalle2.full.schedule"
local lowres = require "dalle2.full.lowres"
local unet = require "dalle2.full.unet"
local vqgan = require "dalle2.full.vqgan"

-- clip_denoised and clip_x_start are taken, and change nothing, as in the
-- original.  unet (in JSON: unets) and vae: constructor keywords, or lists.
local declared = {
  unet = options.any, unets = options.maybe("table"), clip = options.any,
  image_size = options.maybe("size"), image_sizes = options.listed("size"),
  channels = 3, vae = options.maybe("table"), timesteps = 1000,
  sample_timesteps = options.each(dpc.null, "size"),
  image_cond_drop_prob = options.share(0.1),
  text_cond_drop_prob = options.share(0.5), loss_type = "l2",
  beta_schedule = options.any, predict_x_start = options.each(false),
  predict_v = options.each(false),
  predict_x_start_for_latent_diffusion = false,
  random_crop_sizes = options.each(dpc.null, "size"),
  use_noise_for_lowres_cond = options.each(false),
  use_blur_for_lowres_cond = options.each(true),
  lowres_downsample_first = true, blur_prob = options.share(0.5),
  blur_sigma = options.each(0.6), blur_kernel_size = options.each(3),
  lowres_noise_sample_level = 0.2, clip_denoised = true,
  clip_x_start = true, clip_adapter_overrides = options.any,
  learned_variance = options.each(true),
  learned_variance_constrain_frac = false, vb_loss_weight = 0.001,
  unconditional = false, auto_normalize_img = true,
  use_dynamic_thres = false, dynamic_thres_percentile = options.share(0.95),
  p2_loss_weight_gamma = options.each(0.0), p2_loss_weight_k = 1.0,
  ddim_sampling_eta = options.share(0),
}

local decoder = {}
decoder.__index = decoder

---- construction ----

-- option `key` for n stages; a shorter list is filled with `rest`, a single
-- value counts for the first alone.
local function padded(o, key, n, rest)
  local value = o[key]
  local list = type(value) == "table" and { table.unpack(value) } or { value }
  if #list > n then
    options.fail(o, key, "%s has %d values for %d U-Nets", key, #list, n)
  end
  for i = #list + 1, n do
    list[i] = rest
  end
  return list
end

-- option `key` of stages after the first, which is given false.
local function later(o, key, n)
  local value = o[key]
  local list = {}
  if type(value) == "table" then
    list = { table.unpack(value) }
  else
    for i = 1, n - 1 do
      list[i] = value
    end
  end
  if #list < n then
    table.insert(list, 1, false)
  end
  if list[1] then
    options.fail(o, key, "%s: the first U-Net has no small picture", key)
  end
  return list
end

-- Sides of the stages' pictures, the smallest first.
local function sizes_of(o, n)
  if (o.image_size == nil) == (o.image_sizes == nil) then
    options.fail(o, o.image_size and "image_size",
                 "one of image_size and image_sizes is wanted")
  end
  local seen, list = {}, {}
  for _, size in ipairs(o.image_sizes or { o.image_size }) do
    if not seen[size] then
      list[#list + 1], seen[size] = size, true
    end
  end
  table.sort(list)
  if #list ~= n then
    options.fail(o, o.image_sizes and "image_sizes" or "image_size",
                 "%d sizes of pictures for %d U-Nets", #list, n)
  end
  return list
end

local function schedules_of(o, n)
  local kinds = o.beta_schedule
  if not kinds then
    kinds = {}
    for i = 1, n do
      kinds[i] = n > 1 and i == n and "linear" or "cosine"
    end
  end
  local list = options.list({ beta_schedule = kinds, given = o.given,
                              what = o.what }, "beta_schedule", n)
  local gamma, all = options.list(o, "p2_loss_weight_gamma", n), {}
  for i = 1, n do
    all[i] = schedule.new(list[i], o.timesteps,
                          { gamma = gamma[i], k = o.p2_loss_weight_k },
                          function(text)
      options.fail(o, o.beta_schedule and "beta_schedule" or "timesteps",
                   "U-Net %d: %s", i, text)
    end)
  end
  return all
end

-- Where there are later stages, each is given a worse small picture.
local function lowres_of(self, i, use_blur, use_noise)
  local o = self.o
  if i == 1 then
    return nil
  elseif not use_blur and not use_noise then
    options.fail(o, "use_blur_for_lowres_cond", "U-Net %d has neither blur "
                 .. "nor noise on its small picture", i)
  end
  return lowres.new{
    downsample_first = o.lowres_downsample_first, use_blur = use_blur,
    use_noise = use_noise, blur_prob = o.blur_prob, blur_sigma = o.blur_sigma,
    blur_kernel_size = o.blur_kernel_size, range = self.range,
    normalize = self.normalize, unnormalize = self.unnormalize }
end

local function unet_of(self, i, learned, noise_cond, channels)
  local o, given = self.o, self.unets[i]
  local text = given.cond_on_text_encodings
  return unet.new(given, {
    lowres_cond = i > 1, lowres_noise_cond = noise_cond,
    cond_on_image_embeds = not o.unconditional and i == 1,
    cond_on_text_encodings = not o.unconditional and text == true,
    channels = channels, channels_out = channels * (learned and 2 or 1) },
    self.scoped and "unets." .. i - 1)
end

-- A VQGanVAE that a stage diffuses in the codes of.
local function frozen_vae(given, i)
  local vae = vqgan.new(given, "vaes." .. i - 1)
  return {
    encoded_dim = vae.encoded_dim,
    encoded_size = function(_, n) return vae:encoded_size(n) end,
    encode = function(_, x)
      return layers.foreign(function() return vae:encode(x) end)
    end,
    decode = function(_, x)
      return layers.foreign(function() return (vae:decode(x)) end)
    end,
  }
end

local function identity(x) return x end

local function shared(o)
  local auto = o.auto_normalize_img
  return setmetatable({
    o = o, range = { auto and 0 or -1, 1 },
    normalize = auto and function(x) return x * 2 - 1 end or identity,
    unnormalize = auto and function(x) return (x + 1) * 0.5 end or identity,
    image_drop = o.image_cond_drop_prob, text_drop = o.text_cond_drop_prob,
    stage = {},
  }, decoder)
end

local function check(o, n)
  for _, steps in ipairs(options.list(o, "sample_timesteps", n)) do
    if steps ~= dpc.null and steps > o.timesteps then
      options.fail(o, "sample_timesteps", "sample_timesteps %d is more than "
                   .. "timesteps, %d", steps, o.timesteps)
    end
  end
  if options.list(o, "random_crop_sizes", n)[1] ~= dpc.null then
    options.fail(o, "random_crop_sizes", "random_crop_sizes: the first U-Net "
                 .. "draws whole pictures")
  end
  if o.unconditional and o.clip then
    options.fail(o, "clip", "clip is given, and unconditional is set")
  end
end

-- Pictures of each stage, or what they become, can be halved as often as the
-- U-Net wants.
local function sides_check(o, s)
  local n = s.crop or s.vae and s.vae:encoded_size(s.size) or s.size
  local part = 2 ^ s.unet:halvings() | 0
  if n % part ~= 0 then
    options.fail(o, s.crop and "random_crop_sizes"
                 or o.image_sizes and "image_sizes" or "image_size",
                 "U-Net %d works on %d x %d, and halves the sides %d times: "
                 .. "a multiple of %d is wanted", s.number, n, n,
                 s.unet:halvings(), part)
  end
end

-- A table of keywords, or a list of them, as a list.
local function listed(o, key)
  local x = o[key]
  local list = x and (type(x) ~= "table" and { x } or #x > 0 and x or { x })
      or {}
  for i, keywords in ipairs(list) do
    if type(keywords) ~= "table" and keywords ~= dpc.null then
      options.fail(o, key, "%s[%d] is %s; a table of keywords is wanted", key,
                   i - 1, tostring(keywords))
    end
  end
  return list
end

-- given: the constructor's keywords.  scoped: whether weights are below
-- "unets.N", "vaes.N"; so they are anyhow where there are several U-Nets.
local function new(given, scoped)
  local o = options.take(given, "Decoder", declared)
  local unets = listed(o, o.unets and "unets" or "unet")
  local n = #unets
  if n == 0 then
    options.fail(o, nil, "\"unets\" is missing; it has no default")
  end
  check(o, n)
  local self, vaes = shared(o), listed(o, "vae")
  self.unets, self.scoped = unets, scoped or n > 1
  local learned = padded(o, "learned_variance", n, false)
  local noise = later(o, "use_noise_for_lowres_cond", n)
  local blur = later(o, "use_blur_for_lowres_cond", n)
  local sizes, schedules = sizes_of(o, n), schedules_of(o, n)
  local crops = options.list(o, "random_crop_sizes", n)
  local steps = options.list(o, "sample_timesteps", n)
  local x0 = options.list(o, "predict_x_start", n)
  local v = options.list(o, "predict_v", n)
  for i = 1, n do
    local vae = vaes[i] and vaes[i] ~= dpc.null
        and frozen_vae(vaes[i], i)
    local clean = x0[i]
    if o.predict_x_start_for_latent_diffusion then
      clean = vae and true
    end
    self.stage[i] = {
      number = i, size = sizes[i], before = sizes[i - 1], vae = vae,
      learned = learned[i], schedule = schedules[i],
      crop = crops[i] ~= dpc.null and crops[i] or nil,
      steps = steps[i] ~= dpc.null and steps[i] or nil,
      predict = v[i] and "v" or clean and "x0" or "noise",
      lowres = lowres_of(self, i, blur[i], noise[i]),
      unet = unet_of(self, i, learned[i], noise[i],
                     vae and vae.encoded_dim or o.channels) }
    sides_check(o, self.stage[i])
  end
  self.loss_of = schedule.loss(o.loss_type, function(text)
    options.fail(o, "loss_type", "%s", text)
  end)
  return self
end

---- what U-Nets are told ----

-- Whether any U-Net looks at text.
function decoder:wants_text()
  for _, s in ipairs(self.stage) do
    if s.unet.o.cond_on_text_encodings then
      return true
    end
  end
  return false
end

-- c: image_embed [b, e], text_encodings [b, n, e'], for stage s or for all.
function decoder:condition_check(c, s)
  local image = not self.o.unconditional
      and (not s or s.unet.o.cond_on_image_embeds)
  if image and not c.image_embed then
    dpc.fail("Decoder: there is no image_embed, and unconditional is not set")
  elseif self:wants_text() ~= (c.text_encodings ~= nil) then
    dpc.fail(self:wants_text() and "Decoder: a U-Net has "
             .. "cond_on_text_encodings, but there are no text_encodings"
             or "Decoder: text_encodings, but no U-Net has "
             .. "cond_on_text_encodings")
  end
end

-- A stage's output [b, 2 c, ...] or [b, c, ...] -> prediction, variance or
-- nil.
function decoder.parts_of(s, said)
  if s.learned then
    return layers.halves(said, 1)
  end
  return said, nil
end

-- Logarithm of the variance that the network chose between the least and the
-- largest (Nichol and Dhariwal 2021, eq. 15).
function decoder:log_variance(k, share)
  local f = (share + 1) * 0.5
  if self.o.learned_variance_constrain_frac then
    f = f:sigmoid()
  end
  return f * k.log_betas + (1 - f) * k.posterior_log_variance_clipped
end

---- the variational bound ----

local BITS = 1 / math.log(2)

-- Two Gaussians of means m and logarithms of variance v.
local function divergence(m1, v1, m2, v2)
  local d = m1 - m2
  return ((v2 - v1) - 1 + (v1 - v2):exp() + d * d * (-v2):exp()) * 0.5
end

-- Gaussian's distribution function, by tanh.
local function below(x)
  return (((x + x * x * x * 0.044715) * (2 / math.pi) ^ 0.5):tanh() + 1) * 0.5
end

local function log(x) return x:maximum(1e-12):log() end

-- Of pixels x in 256 steps of -1 .. 1, under a Gaussian: log of probability.
local function log_likelihood(x, mean, log_scale)
  local d, inverse = x - mean, (-log_scale):exp()
  local high = below(inverse * (d + 1 / 255))
  local low = below(inverse * (d - 1 / 255))
  local inside = (-x):lt(0.999):where(log(high - low), log(high))
  return x:le(0.999):where(inside, log(1 - low))
end

-- Mean over all but the first dimension: [b].
local function each(x)
  return nn.mean(x, "bchw->b")
end

-- Bits of each sample, mean over the batch: f32 [].  What the network says is
-- read as noise, whatever it predicts, as in the original; its mean is fixed.
function decoder:bound(s, x0, x, t, said)
  local k = s.schedule:at(t, x0)
  local noise, share = layers.halves(said, 1)
  local mean = schedule.posterior(k, x, schedule.start(k, x, noise, "noise"))
      :stop()
  local variance = self:log_variance(k, share)
  local kl = divergence(schedule.posterior(k, x, x0),
                        k.posterior_log_variance_clipped, mean, variance)
  local nll = -log_likelihood(x0, mean, variance * 0.5)
  local first = layers.real(t):eq(0)                       -- [b]
  return nn.mean(first:where(each(nll), each(kl))) * BITS
end

---- training ----

-- The picture, the small one and its level of noise, as stage s wants them.
function decoder:prepared(s, image, more)
  local small, level
  if s.lowres then
    small, level = s.lowres:forward(image, s.before, s.size, more)
  end
  image = picture.nearest(image, s.size)
  if s.crop then
    local b = image:dim(0)
    local row = picture.corners(b, s.size, s.crop)         -- [b]
    local column = picture.corners(b, s.size, s.crop)
    image = picture.crop(image, s.crop, row, column)
    small = picture.crop(small, s.crop, row, column)
  end
  if s.vae then
    return s.vae:encode(image), small and s.vae:encode(small), level
  end
  return self.normalize(image), small and self.normalize(small), level
end

-- What U-Net `number` costs on image [b, c, h, w], f32 [].
--   c: image_embed [b, e], text_encodings [b, n, e']
--   more: times i32 [b], noise like the stage's picture, coin f32 [] of the
--   blur, level i32 [b], self_coin f32 []; what is absent is drawn.
function decoder:loss(number, image, c, more)
  local s = self.stage[number]
  self:condition_check(c, s)
  kinds.expect("Decoder", "image", image,
                { false, self.o.channels, false, false }, "channels")
  if image:dim(2) < s.size or image:dim(3) < s.size then
    dpc.fail(("Decoder: pictures of %d x %d, U-Net %d draws %d x %d")
             :format(image:dim(2), image:dim(3), number, s.size, s.size))
  end
  local x0, small, level = self:prepared(s, image, more)
  local t = more.times and layers.whole(more.times)
      or s.schedule:draw(x0:dim(0))
  local noise = more.noise or dpc.random("normal", x0:dims())
  local k = s.schedule:at(t, x0)
  local x = schedule.noised(k, x0, noise)
  local told = { image_embed = c.image_embed, lowres_cond_img = small,
                 text_encodings = c.text_encodings,
                 lowres_noise_level = level }
  if s.unet.self_cond then
    local guess = decoder.parts_of(s, s.unet:forward(x, t, told)):stop()
    told.self_cond = guess * (more.self_coin
                              or dpc.random("uniform", {}):lt(0.5))
  end
  told.image_drop, told.text_drop = self.image_drop, self.text_drop
  local said = s.unet:forward(x, t, told)
  local pred = decoder.parts_of(s, said)
  local want = s.predict == "x0" and x0 or s.predict == "noise" and noise
      or schedule.v(k, x0, noise)
  local loss = self.loss_of(pred, want)
  if options.list(self.o, "p2_loss_weight_gamma", #self.stage)[number] > 0 then
    loss = loss * k.p2_loss_weight
  end
  loss = nn.mean(loss)
  return s.learned
      and loss + self:bound(s, x0, x, t, said) * self.o.vb_loss_weight or loss
end

return { new = new, declared = declared, class = decoder }
