-- unit_clip.lua -- CLIP as a unit: entries that train x-clip's, and one that
-- turns pictures and captions into embeddings, to be kept as data.
--
-- The configuration is CLIP's keywords, or an AdapterConfig { "make": ..,
-- "model": .., "base_model_kwargs": {..} }.  Weights bear the original's names,
-- with nothing before them.  Those of other makes than x-clip are only read, as
-- x-clip's are with -D embed=true: `eval` then gives the embeddings.

local nn = require "nn"
local layers = require "dalle2.full.layers"
local adapter = require "dalle2.full.adapter"
local xclip = require "dalle2.full.xclip"
local train = require "dalle2.full.train"

local function unit_of(file)
  local u = { batch = dpc.option("batch", 64, "pairs a step", 1) }
  if file.make ~= nil or file.model ~= nil then
    u.reader = adapter.from_config(file)
    u.clip = file.make == "x-clip" and xclip.new(file.base_model_kwargs)
  else
    u.reader, u.clip = adapter.new("x-clip", file), xclip.new(file)
  end
  if dpc.option("embed", not u.clip, "only turn pairs into embeddings") then
    u.clip = nil
  end
  u.size = dpc.option("image_size", u.reader:image_size(),
                      "pixels of a side of the data's pictures")
  return u
end

local function read(u)
  local text = dpc.input("text", { u.batch, u.reader:max_text_len() }, "i32")
  local dims = { u.batch, u.size, u.size, u.reader:channels() }
  local image = dpc.input("image", dims, "u8"):cast("f32") / 255
  return text, image:move("bhwc->bchw")                    -- [b, c, h, w]
end

-- Of u.batch pairs: the loss of telling them apart.
local function loss(u)
  local text, image = read(u)
  return u.clip:loss(text, image)
end

local function train_entry(u)
  local cost = layers.training(function() return loss(u) end)
  local out = train.step(cost, train.prior{})
  out.loss = cost
  return out
end

local function embed(u)
  local text, image = read(u)
  local text_embed, encodings = u.reader:embed_text(text)
  return { text_embed = text_embed, text_encodings = encodings,
           image_embed = u.reader:embed_image(image) }
end

return function(file)
  local u = unit_of(file)
  if not u.clip then
    return { name = "clip", entries = { eval = function() return embed(u) end },
             parts = require("dalle2.parts").parts }
  end
  return {
    name = "clip",
    entries = {
      train = function() return train_entry(u) end,
      eval = function()
        return { loss = nn.averaged(function() return loss(u) end) }
      end,
    },
    parts = require("dalle2.parts").parts,
  }
end
