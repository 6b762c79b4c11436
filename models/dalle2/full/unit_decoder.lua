-- unit_decoder.lua -- a Decoder as a unit, made from a configuration of the
-- original: entries that train and evaluate one U-Net, or that sample.
--
-- -D unet=N trains the N-th, which alone is in the graph; a decoder of one
-- U-Net samples in the same unit, by its averages.  -D unet=0 is a cascade's
-- sampler: weights are frozen, from checkpoints (--init-from unets.N=PATH).
-- Pictures are u8 [b, c, h, w]; the embedding is data, or, with -D clip=true,
-- the configuration's frozen CLIP reads the picture.

local nn = require "nn"
local config = require "dalle2.full.config"
local layers = require "dalle2.full.layers"
local decoder = require "dalle2.full.decoder"
local adapter = require "dalle2.full.adapter"
local schedule = require "dalle2.full.schedule"
local train = require "dalle2.full.train"
require "dalle2.full.decoder_sample"

-- The first U-Net that the mask leaves to be trained.
local function first_of(mask)
  for i, wanted in ipairs(mask or {}) do
    if wanted then
      return i
    end
  end
  return 1
end

local function unit_of(file)
  local given, data, trainer = config.decoder(file)
  local u = { train = trainer, decoder = decoder.new(given, true) }
  local n = #u.decoder.stage
  u.batch = dpc.option("batch", data and data.batch_size or 64,
                       "pictures a step", 1)
  u.number = dpc.option("unet", trainer and first_of(trainer.unet_training_mask)
                        or 1, "which is trained; 0: all of them sample")
  if u.number < 0 or u.number > n then
    dpc.fail(("-D unet=%d: the decoder has %d"):format(u.number, n))
  end
  u.scale = dpc.option("cond_scale", 1.0, "guidance while sampling; 1: none")
  local wants = dpc.option("clip", false, "read pictures and captions with "
                           .. "CLIP")
  if wants and not (given.clip and given.clip ~= dpc.null) then
    dpc.fail("-D clip=true: the configuration has no clip", dpc.where(given))
  end
  u.clip = wants and adapter.from_config(given.clip,
                                         given.clip_adapter_overrides, "clip")
  u.size = dpc.option("image_size", u.clip and u.clip:image_size()
                      or u.decoder.stage[n].size, "pixels of a side of the "
                      .. "data's pictures")
  return u
end

---- what is read ----

-- Pictures as readers give them, u8 [b, h, w, c], as f32 [b, c, h, w].
local function image(u)
  local dims = { u.batch, u.size, u.size, u.decoder.o.channels }
  local x = dpc.input("image", dims, "u8"):cast("f32") / 255
  return x:move("bhwc->bchw")
end

-- Length and width of text encodings.
local function text_shape(u)
  for _, s in ipairs(u.decoder.stage) do
    local o = s.unet.o
    if o.cond_on_text_encodings then
      return u.clip and u.clip:max_text_len() or o.max_text_len,
          o.text_embed_dim
    end
  end
end

-- image_embed and text_encodings of this step, as far as they are wanted;
-- x: the pictures, for CLIP.
local function condition(u, x)
  local d, c = u.decoder, {}
  local s = d.stage[math.max(u.number, 1)]
  if s.unet.o.cond_on_image_embeds then
    local width = d.stage[1].unet.o.image_embed_dim
    c.image_embed = u.clip and x and u.clip:embed_image(x)
        or dpc.input("image_embed", { u.batch, width })
  end
  if d:wants_text() then
    local n, width = text_shape(u)
    if u.clip then
      local _, words = u.clip:embed_text(
          dpc.input("text", { u.batch, n }, "i32"))
      c.text_encodings = words
    else
      c.text_encodings = dpc.input("text_encodings", { u.batch, n, width })
    end
  end
  return c
end

---- training ----

local function loss(u)
  local x = image(u)
  return u.decoder:loss(u.number, x, condition(u, x), {})
end

local function train_entry(u)
  local cost = layers.training(function() return loss(u) end)
  local o = train.decoder(config.trainer(u.train))
  local out = train.step(cost, o, u.number)
  out.loss = cost
  return out
end

-- Weights of fn: averages where one U-Net is trained here, else frozen.
local function weights(u, fn)
  if u.number == 0 then
    return nn.frozen(fn)
  elseif u.train and not u.train.use_ema then
    return fn()
  end
  return nn.averaged(fn)
end

---- sampling: its state between entries ----

local function canvas(u, s)
  return dpc.state("sample.x" .. s.number, u.decoder:shape(s, u.batch))
end

local function past(u, s)
  return dpc.state("sample.past" .. s.number, u.decoder:shape(s, u.batch))
end

-- What the whole run is told, kept from its first entry.
local function kept(u)
  local d, c = u.decoder, {}
  if not d.o.unconditional then
    c.image_embed = dpc.state("sample.image_embed", {
      u.batch, d.stage[1].unet.o.image_embed_dim })
  end
  if d:wants_text() then
    local n, width = text_shape(u)
    c.text_encodings = dpc.state("sample.text_encodings",
                                 { u.batch, n, width })
  end
  return c
end

local function small_state(u, s)
  return dpc.state("sample.small" .. s.number, u.decoder:shape(s, u.batch))
end

-- The picture that stage s drew, in the range of pictures.
local function drawn(u, s)
  local x = u.decoder.unnormalize(canvas(u, s))
  return s.vae and s.vae:decode(x) or x
end

-- Before stage s: noise, and the small picture of the one before.
local function begin(u, s)
  if s.number == 1 then
    local c, to = condition(u), kept(u)
    for key, state in pairs(to) do
      dpc.set(state, c[key])
    end
  else
    local x = weights(u, function()
      return u.decoder:small(s, drawn(u, u.decoder.stage[s.number - 1]))
    end)
    dpc.set(small_state(u, s), x)
  end
  local x = canvas(u, s)
  dpc.set(x, dpc.random("normal", x:dims()))
  if s.unet.self_cond then
    dpc.set(past(u, s), 0)
  end
end

local function draws(steps)
  for _, k in ipairs(steps) do
    if k.noisy and (k.ddpm == 1 or k.draw ~= 0) then
      return true
    end
  end
  return false
end

local function denoise(u, s, steps)
  local d = u.decoder
  local told = kept(u)
  if s.lowres then
    told.lowres_cond_img = small_state(u, s)
    told.lowres_noise_level = s.lowres.use_noise
        and dpc.const(d:lowres_level(), { u.batch }) or nil
  end
  local at = dpc.scalar("step", 0, "steps done"):cast("i32") -- []
  local o = { ddpm = steps[1].ddpm == 1,
              scale = u.scale ~= 1
                  and dpc.scalar("cond_scale", u.scale, "guidance") or 1 }
  local own = s.unet.self_cond
  local x, x0 = weights(u, function()
    local k = schedule.steps(steps, s.schedule.fail)(at)
    return d:step(s, canvas(u, s), k, told, own and past(u, s), o,
                  draws(steps), false)
  end)
  dpc.set(canvas(u, s), x)
  if own then
    dpc.set(past(u, s), x0)
  end
end

-- Entries begin1, denoise1, begin2, .., finish, and their order.
local function sampler(u, entries)
  local run = {}
  for i, s in ipairs(u.decoder.stage) do
    local steps = u.decoder:steps(s)
    u.decoder:guidance_check(s, { scale = u.scale,
                                  ddpm = steps[1].ddpm == 1 })
    entries["begin" .. i] = function() return begin(u, s) end
    entries["denoise" .. i] = function() return denoise(u, s, steps) end
    run[#run + 1] = "begin" .. i
    run[#run + 1] = { "denoise" .. i, times = #steps }
  end
  entries.finish = function()
    local last = u.decoder.stage[#u.decoder.stage]
    local x = weights(u, function() return drawn(u, last) end)
    return { pictures = nn.clamp(x, 0, 1) }
  end
  run[#run + 1] = "finish"
  return run
end

return function(file)
  local u = unit_of(file)
  local entries, runs = {}, {}
  if u.number > 0 then
    entries.train = function() return train_entry(u) end
    entries.eval = function()
      return { loss = weights(u, function() return loss(u) end) }
    end
  end
  if u.number == 0 or #u.decoder.stage == 1 then
    runs.sample = sampler(u, entries)
  end
  return { name = "decoder", entries = entries, runs = runs,
           parts = require("dalle2.parts").parts }
end
