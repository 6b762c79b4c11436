-- lora.lua -- trains low-rank adapters of an edit model whose weights stay as
-- they are: the recipe of Qwen-Image-Edit-F2P.
--
-- `--config config.json` of a released transformer; `--init-from DIR` its
-- weights.  The twelve kinds of layers are adapted in every block.

local nn = require "nn"
local optim = require "optim"
local layers = require "layers"
local mmdit = require "mmdit"
local editing = require "editing"

local rank = dpc.option("rank", 32, "of the adapters", 1)
local alpha = dpc.option("alpha", 0, "scale times rank; 0: the rank")
local key = dpc.option("key", "", "of the adapter, as in lora_A.KEY.weight")
local targets = dpc.option("targets", layers.targets,
                           "ends of the names of adapted layers")

local function adapted(fn)
  local o = { rank = rank, targets = targets, key = key ~= "" and key or nil,
              alpha = alpha ~= 0 and alpha or nil }
  return nn.frozen(function() return layers.adapted(o, fn) end)
end

local function loss_of(bucket)
  return adapted(function()
    return editing.train_loss(editing.batch(bucket))
  end)
end

local function train(bucket)
  local loss = loss_of(bucket)
  local out = optim.step(loss, { rate = editing.rate(1e-4), b2 = 0.999,
                                 clip = 1e9, ema = false })
  out.loss = loss
  return out
end

local function eval(bucket) return { loss = loss_of(bucket) } end

local entries, runs = editing.sampler(adapted)
for name, fn in pairs(editing.entries("train", train)) do
  entries[name] = fn
end
for name, fn in pairs(editing.entries("eval", eval)) do
  entries[name] = fn
end

---- parts: what parity cases ask for ----

-- The transformer with adapters: options of both, the adapter's called rank,
-- alpha, targets, key, or as PEFT has them r, lora_alpha, target_modules.
local function part(options, x, call)
  local own, how = {}, { rank = 4 }
  local name = { rank = "rank", alpha = "alpha", targets = "targets",
                 key = "key", r = "rank", lora_alpha = "alpha",
                 target_modules = "targets" }
  for k, value in pairs(options) do
    if name[k] then
      how[name[k]] = value
    else
      own[k] = value
    end
  end
  if type(how.targets) == "table" then
    for i, t in ipairs(how.targets) do
      if type(t) ~= "string" then
        dpc.fail(("lora: target_modules[%d] is a %s; names are wanted")
                 :format(i - 1, type(t)))
      end
    end
    how.targets = table.concat(how.targets, ",")
  end
  local out = nn.frozen(function()
    return layers.adapted(how, function()
      return mmdit.forward(mmdit.options(own), {
        hidden_states = x.hidden_states, timestep = x.timestep,
        encoder_hidden_states = x.encoder_hidden_states,
        encoder_hidden_states_mask = x.encoder_hidden_states_mask,
        additional_t_cond = x.additional_t_cond, img_shapes = call.img_shapes,
      })
    end)
  end)
  return { out = out }
end

return {
  name = "lora",
  entries = entries,
  runs = runs,
  parts = { lora = part },
}
