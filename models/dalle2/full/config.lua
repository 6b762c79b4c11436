-- config.lua -- the training configurations of DALLE2-pytorch (its
-- train_configs.py), read as they are: names of sections and keys, defaults.
--
-- A file is a whole configuration, { "prior": {..}, "data": {..}, .. }, or
-- the first section alone, with or without its name.  Sections about data and
-- tracking are checked, and only what a graph depends on is used: the batch,
-- and the trainer's numbers.

local kinds = require "kinds"
local options = require "dalle2.full.options"

local config = {}
local section, maybe, listed = options.section, options.maybe, options.listed

local splits = { train = 0.75, val = 0.15, test = 0.1 }

local prior_data = {
  image_url = options.text, meta_url = options.text, splits = section,
  batch_size = options.size, num_data_points = 25e7, eval_every_seconds = 3600,
}

local decoder_data = {
  webdataset_base_url = options.text, img_embeddings_url = maybe("string"),
  text_embeddings_url = maybe("string"), num_workers = options.count(4),
  batch_size = 64, start_shard = 0, end_shard = 9999999, shard_width = 6,
  index_width = 4, splits = section, shuffle_train = true,
  resample_train = false, preprocessing = maybe("table"),
}

local ema = {
  ema_update_after_step = maybe("count"), ema_update_every = maybe("size"),
  ema_inv_gamma = maybe("positive"), ema_power = maybe("number"),
  ema_min_value = maybe("number"),
}

local prior_train = options.join(ema, {
  epochs = 1, lr = 1.1e-4, wd = 6.02e-2, max_grad_norm = 0.5, use_ema = true,
  ema_beta = 0.99, amp = false, warmup_steps = maybe("count"),
  save_every_seconds = 3600, eval_timesteps = listed("size"),
  best_validation_loss = 1e9, current_epoch = 0, num_samples_seen = 0,
  random_seed = 0,
})

local decoder_train = options.join(ema, {
  epochs = 20, lr = options.each(1e-4), wd = options.each(0.01),
  warmup_steps = options.each(dpc.null, "count"), find_unused_parameters = true,
  static_graph = true, max_grad_norm = options.each(0.5),
  save_every_n_samples = 100000, n_sample_images = options.count(6),
  cond_scale = options.each(1.0), device = "cuda:0",
  epoch_samples = maybe("size"), validation_samples = maybe("size"),
  save_immediately = false, use_ema = true, ema_beta = 0.999, amp = false,
  unet_training_mask = listed("boolean"),
})

local evaluate = { n_evaluation_samples = 1000, FID = maybe("table"),
                   IS = maybe("table"), KID = maybe("table"),
                   LPIPS = maybe("table") }

local tracker = { data_path = ".tracker_data", overwrite_data_path = false,
                  log = section, load = maybe("table"), save = section }

local whole = {
  prior = { prior = section, data = section, train = section,
            tracker = section },
  decoder = { decoder = section, data = section, train = section,
              evaluate = section, tracker = section, seed = 0 },
}

-- Shares that sum to one, exactly, as the original asks.
local function splits_check(given)
  local o = options.take(given, "TrainSplitConfig", splits)
  local sum = o.train + o.val + o.test
  if sum ~= 1 then
    options.fail(o, nil, "train, val and test sum to %.17g; 1 is wanted", sum)
  end
end

-- A key that is none of a file's sections, and near one, is misspelt.
local function misspelt_check(file, name)
  local names = {}
  for key in pairs(whole[name]) do
    names[#names + 1] = key
  end
  for key in pairs(file) do
    local near = whole[name][key] == nil and dpc.near(tostring(key), names)
    if near then
      dpc.fail(("no section \"%s\"; did you mean \"%s\"?"):format(key, near),
               dpc.where(file, key))
    end
  end
end

-- file: dpc.config; name: "prior" or "decoder"; first: a key that the section
-- must have.  Returns that section, and data and train, nil where the file is
-- the section alone.
local function sections(file, name, first, classes)
  if file[name] == nil then
    if file[first] == nil then
      misspelt_check(file, name)
    end
    return file, nil, nil
  elseif not (file.data or file.train or file.tracker) then
    options.take(file, classes.whole, { [name] = section })
    return file[name], nil, nil
  end
  local o = options.take(file, classes.whole, whole[name])
  local data = options.take(o.data, classes.data, classes.data_keys)
  splits_check(data.splits)
  options.take(o.tracker, "TrackerConfig", tracker)
  if o.evaluate then
    options.take(o.evaluate, "DecoderEvaluateConfig", evaluate)
  end
  return o[name], data, options.take(o.train, classes.train,
                                     classes.train_keys)
end

-- Keys that the class insists on, and its constructor does not.
local function require_keys(given, what, keys)
  for _, key in ipairs(keys) do
    if given[key] == nil or given[key] == dpc.null then
      dpc.fail(("%s: \"%s\" is missing; it has no default"):format(what, key),
               dpc.where(given))
    end
  end
end

function config.prior(file)
  local given, data, train = sections(file, "prior", "net", {
    whole = "TrainDiffusionPriorConfig", data = "DiffusionPriorDataConfig",
    data_keys = prior_data, train = "DiffusionPriorTrainConfig",
    train_keys = prior_train })
  require_keys(given, "DiffusionPriorConfig",
               { "net", "image_embed_dim", "image_size" })
  return given, data, train
end

function config.decoder(file)
  local given, data, train = sections(file, "decoder", "unets", {
    whole = "TrainDecoderConfig", data = "DecoderDataConfig",
    data_keys = decoder_data, train = "DecoderTrainConfig",
    train_keys = decoder_train })
  require_keys(given, "DecoderConfig", { "unets" })
  local unets = given.unets
  if type(unets) == "table" and kinds.empty(unets) then
    dpc.fail("DecoderConfig: \"unets\" is empty; a list of U-Nets is wanted",
             dpc.where(given, "unets"))
  end
  for _, unet in ipairs(type(unets) == "table" and unets or {}) do
    if type(unet) == "table" then
      require_keys(unet, "UnetConfig", { "dim", "dim_mults" })
    end
  end
  return given, data, train
end

-- The keywords that a trainer takes, of the section "train", and where they
-- come from; nil: none.
local trainer = { "lr", "wd", "max_grad_norm", "use_ema", "warmup_steps",
                  "ema_beta", "ema_update_after_step", "ema_update_every",
                  "ema_inv_gamma", "ema_power", "ema_min_value" }

function config.trainer(section)
  local o = {}
  for _, key in ipairs(section and trainer or {}) do
    o[key] = section[key]
  end
  return o, section and section.given
end

return config
