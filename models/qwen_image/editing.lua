-- editing.lua -- what edit.lua and lora.lua share: batches, loss, sampler.
--
-- An edit model sees the picture that it makes and its references as one
-- sequence: the target's tokens, then those of each reference, each with rows
-- and columns of its own; only the target's velocity is asked for (Qwen-Image
-- Technical Report 2025, 3.3).  Latents and texts are data, made beforehand.
--
-- Sizes are compiled in, so a bucket is a program: the pixels of the target
-- and of each reference, "512x768+512x512+384x384".

local mmdit = require "mmdit"
local flow = require "flow"
local constructor = require "options"

local editing = {}

local import = dpc.option("import", "diffusers", "whose reading of the "
    .. "weights: diffusers (GELU by tanh) or diffsynth (by a sigmoid)",
    { "diffusers", "diffsynth" })
local config = mmdit.options(dpc.config, import)

-- What of the configuration an edit model cannot have, at its line.
local function wrong(key, form, ...)
  constructor.fail("qwen_image", dpc.config, key, form, ...)
end

local in_channels <const> = config.out_channels * config.patch_size ^ 2 // 1
if config.in_channels ~= in_channels then
  wrong("in_channels", "in_channels is %d; tokens of %d x %d latents of "
        .. "out_channels %d have %d", config.in_channels, config.patch_size,
        config.patch_size, config.out_channels, in_channels)
end

if config.use_additional_t_cond then
  wrong("use_additional_t_cond", "use_additional_t_cond is of Layered models, "
        .. "which are told for each sample whether its picture is RGB; "
        .. "batches of edits do not say it: transformer.lua takes it as an "
        .. "input")
end

---- buckets ----

-- Pixels of one latent; of one token.
local LATENT = 8
local TOKEN = LATENT * config.patch_size

-- "64x128" in latents; nil: it is no size.
local function size_of(text)
  local h, w = text:match("^([1-9]%d*)x([1-9]%d*)$")
  if h and tonumber(h) % TOKEN == 0 and tonumber(w) % TOKEN == 0 then
    return { h = tonumber(h) // LATENT, w = tonumber(w) // LATENT }
  end
end

-- What is wrong with a text of buckets; nil: nothing.
local function buckets_wrong(text)
  local seen = {}
  for bucket in (text .. ","):gmatch("([^,]*),") do
    for size in (bucket .. "+"):gmatch("([^+]*)%+") do
      if not size_of(size) then
        return ("bucket size \"%s\": HxW is wanted, both multiples of %d")
            :format(size, TOKEN)
      end
    end
    if seen[bucket] then
      return ("\"%s\" stands twice"):format(bucket)
    end
    seen[bucket] = true
  end
end

local options = {
  batch = dpc.option("batch", 1, "samples a step", 1),
  text = dpc.option("text", 512, "tokens of an instruction, filled up", 1),
  buckets = dpc.option("buckets", "1024x1024+1024x1024",
      "sizes HxW of target + references, one program each, with commas",
      buckets_wrong),
  sampling = dpc.option("sampling", "diffsynth", "how noise is drawn in "
      .. "training: diffsynth, or diffusers' uniform, logit_normal, mode, "
      .. "sigma_sqrt, cosmap", { "diffsynth", "uniform", "logit_normal",
                                 "mode", "sigma_sqrt", "cosmap" }),
}

-- Buckets that were not given may not be multiples of the given patches.
local misfit = buckets_wrong(options.buckets)
if misfit then
  wrong("patch_size", "%s, of patch_size %d; give -D buckets", misfit,
        config.patch_size)
end

-- List of { name, target size, sizes of references }, sizes in latents.
function editing.buckets()
  local list = {}
  for text in options.buckets:gmatch("[^,]+") do
    local bucket = { name = text:gsub("%+", "-"), references = {} }
    for one in text:gmatch("[^+]+") do
      local size = size_of(one)
      if bucket.target then
        bucket.references[#bucket.references + 1] = size
      else
        bucket.target = size
      end
    end
    list[#list + 1] = bucket
  end
  return list
end

-- name -> fn(bucket) for each bucket: "train" itself where there is but one,
-- else "train-512x512-512x512".
function editing.entries(name, fn)
  local entries, list = {}, editing.buckets()
  for _, bucket in ipairs(list) do
    local full = #list == 1 and name or name .. "-" .. bucket.name
    entries[full] = function() return fn(bucket) end
  end
  return entries
end

---- one batch ----

local function latents(name, size)
  return dpc.input(name, { options.batch, config.out_channels, size.h,
                           size.w })
end

-- From the inputs "latents" and "reference1" ... [b, c, h, w], "text" [b, m,
-- joint_attention_dim] and "text_mask" u8 [b, m], 1 at words.
function editing.batch(bucket)
  local x = { references = {} }
  x.latents = latents("latents", bucket.target)
  for i, size in ipairs(bucket.references) do
    x.references[i] = latents("reference" .. i, size)
  end
  local b, m = options.batch, options.text
  x.words = dpc.input("text", { b, m, config.joint_attention_dim })
  x.mask = dpc.input("text_mask", { b, m }, "u8"):cast("f32")
  return x
end

-- Flow matching at s drawn as the option says, with noise of this step -> f32
-- [].
function editing.train_loss(x)
  local draw = flow.samplings[options.sampling]
  local s, t, weight = draw(options.batch)
  return mmdit.matching(config, x.latents,
                        dpc.random("normal", x.latents:dims()), s, t, weight,
                        x)
end

-- Learning rate of DiffSynth's scripts, f32 []: a third of it for five steps.
function editing.rate(default)
  local step = dpc.scalar("step", 0, "steps done")         -- []
  local lr = dpc.scalar("lr", default, "learning rate, from the sixth step on")
  return step:lt(5):where(lr / 3, lr)
end

---- sampling ----

-- Entries that draw edits of a bucket: "start" puts noise, "denoise" takes a
-- step of `steps`, "finish" gives latents.  tail: of their names; size: of the
-- state's and the output's, which have one type each; net: function(fn) that
-- says whose weights.
local function bucket_sampler(entries, bucket, tail, size, net)
  local dims = { options.batch, config.out_channels, bucket.target.h,
                 bucket.target.w }
  local p = config.patch_size
  local tokens = dims[3] * dims[4] // p ^ 2 // 1
  local function canvas() return dpc.state("sample.x" .. size, dims) end
  entries["start" .. tail] = function()
    dpc.set(canvas(), dpc.random("normal", dims))
  end
  entries["denoise" .. tail] = function()
    local x = editing.batch(bucket)
    local i = dpc.scalar("step", 0, "steps done")
    local n = dpc.scalar("steps", 40, "steps of the sampler")
    local z = canvas()
    local s = flow.at(i, n, tokens):move("->b", { b = dims[1] })
    local v = net(function() return mmdit.velocity(config, z, s, x) end)
    dpc.set(z, flow.step(z, flow.unpacked(v, p, dims[3] // p), i, n, tokens))
  end
  entries["finish" .. tail] = function()
    return { ["latents" .. size] = canvas() }
  end
end

-- ".512x768" of a target that is not as large as the first bucket's, else "".
local function size_tail(target, first)
  return target.h == first.h and target.w == first.w and ""
      or (".%dx%d"):format(LATENT * target.h, LATENT * target.w)
end

-- Entries and runs that draw edits: "sample", and where there are several
-- buckets "sample-512x512-512x512", ..., the first of which is "sample".
function editing.sampler(net)
  local entries, runs, list = {}, {}, editing.buckets()
  for _, bucket in ipairs(list) do
    local tail = #list == 1 and "" or "-" .. bucket.name
    bucket_sampler(entries, bucket, tail,
                   size_tail(bucket.target, list[1].target), net)
    local run = { "start" .. tail, { "denoise" .. tail, times = "steps" },
                  "finish" .. tail }
    runs["sample" .. tail], runs.sample = run, runs.sample or run
  end
  return entries, runs
end

return editing
