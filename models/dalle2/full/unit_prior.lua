-- unit_prior.lua -- a DiffusionPrior as a unit: entries that train, evaluate
-- and sample it, made from a configuration of the original.
--
-- By default CLIP's embeddings are data: image_embed [b, k], text_embed
-- [b, k], text_encodings [b, n, k], absent tokens all zeros.  With -D clip=true
-- captions are tokens i32 [b, n], and the frozen CLIP of the configuration
-- reads them: --init-from clip=PATH.

local nn = require "nn"
local config = require "dalle2.full.config"
local layers = require "dalle2.full.layers"
local prior = require "dalle2.full.prior"
local adapter = require "dalle2.full.adapter"
local schedule = require "dalle2.full.schedule"
local train = require "dalle2.full.train"

-- Everything that the entries share.
local function unit_of(file)
  local given, data, trainer = config.prior(file)
  local u = { train = trainer }
  u.batch = dpc.option("batch", data and data.batch_size or 64,
                       "embeddings a step", 1)
  u.tries = dpc.option("num_samples", 2, "samples to choose one from", 1)
  u.scale = dpc.option("cond_scale", 1.0, "guidance while sampling; 1: none")
  local wants = dpc.option("clip", false, "read captions with CLIP")
  if wants and not (given.clip and given.clip ~= dpc.null) then
    dpc.fail("-D clip=true: the configuration has no clip", dpc.where(given))
  end
  u.clip = wants and adapter.from_config(given.clip,
                                         given.clip_adapter_overrides, "clip")
  u.prior = prior.new(given, u.clip and u.clip:width(), "net")
  u.length = u.clip and u.clip:max_text_len() or u.prior.net.o.max_text_len
  return u
end

-- text_embed [b, k] and text_encodings [b, n, k] of this step's captions.
local function text(u)
  local k = u.prior.width
  if u.clip then
    return u.clip:embed_text(dpc.input("text", { u.batch, u.length }, "i32"))
  end
  return dpc.input("text_embed", { u.batch, k }),
      u.prior.o.condition_on_text_encodings
      and dpc.input("text_encodings", { u.batch, u.length, k }) or nil
end

local function loss(u)
  local image = dpc.input("image_embed", { u.batch, u.prior.width })
  return u.prior:loss(image, u.prior:condition(text(u)), {})
end

local function train_entry(u)
  local cost = layers.training(function() return loss(u) end)
  local out = train.step(cost, train.prior(config.trainer(u.train)))
  out.loss = cost
  return out
end

local function averaged(u, fn)
  if u.train and not u.train.use_ema then
    return fn()
  end
  return nn.averaged(fn)
end

---- sampling: its state between entries ----

local function canvas(u)
  return dpc.state("sample.x", { u.batch * u.tries, u.prior.width })
end

local function past(u)
  return dpc.state("sample.past", { u.batch * u.tries, u.prior.width })
end

local function words(u)
  local k, n = u.prior.width, u.prior.net.o.max_text_len
  return dpc.state("sample.text", { u.batch, k }),
      u.prior.o.condition_on_text_encodings
      and dpc.state("sample.words", { u.batch, math.min(n, u.length), k })
end

local function start(u)
  local embed, encodings = text(u)
  local kept, kept_words = words(u)
  dpc.set(kept, embed)
  if kept_words then
    dpc.set(kept_words, layers.first(encodings, kept_words:dim(1)))
  end
  dpc.set(canvas(u), u.prior:first(u.batch * u.tries))
  if u.prior.net.self_cond then
    dpc.set(past(u), 0)
  end
end

-- A value [b, ...] once for each try, side by side.
local function for_tries(u, x)
  local rest = ("nk"):sub(1, #x:dims() - 1)
  return x:move(("b%s->(br)%s"):format(rest, rest), { r = u.tries })
end

local function denoise(u, steps)
  local embed, encodings = words(u)
  local c = { text_embed = for_tries(u, embed),
              text_encodings = encodings and for_tries(u, encodings) }
  local at = dpc.scalar("step", 0, "steps done"):cast("i32") -- []
  local s = schedule.steps(steps, u.prior.noise.fail)(at)
  local scale = u.scale ~= 1
      and dpc.scalar("cond_scale", u.scale, "guidance") or 1
  local own = u.prior.net.self_cond
  averaged(u, function()
    local x, x0 = u.prior:step(canvas(u), s, c, own and past(u), scale, true)
    dpc.set(canvas(u), x)
    if own then
      dpc.set(past(u), x0)
    end
  end)
end

local function finish(u)
  local x = u.prior:finish(canvas(u))
  local embed = for_tries(u, (words(u)))
  return { image_embed = prior.nearest(x, embed, u.tries) }
end

return function(file)
  local u = unit_of(file)
  local steps = u.prior:steps()
  u.prior:guidance_check(u.scale, #steps < u.prior.T)
  return {
    name = "prior",
    entries = {
      train = function() return train_entry(u) end,
      eval = function()
        return { loss = averaged(u, function() return loss(u) end) }
      end,
      start = function() return start(u) end,
      denoise = function() return denoise(u, steps) end,
      finish = function() return finish(u) end,
    },
    runs = { sample = { "start", { "denoise", times = #steps }, "finish" } },
    parts = require("dalle2.parts").parts,
  }
end
