-- adapter.lua -- the CLIP that priors and decoders read, of whatever make.
--
-- It is frozen, and always evaluated: whatever is trained around it, it drops
-- nothing.  (The original puts it back into training, and its patch dropout
-- makes embeddings random.)

local layers = require "dalle2.full.layers"
local options = require "dalle2.full.options"
local picture = require "dalle2.full.picture"
local xclip = require "dalle2.full.xclip"
local coca = require "dalle2.full.coca"
local vit = require "dalle2.full.vit"

local adapter = {}
adapter.__index = adapter

local makers = {
  ["x-clip"] = xclip.new, coca = coca.new, openai = vit.new,
  open_clip = vit.new,
}

-- make: "openai", "open_clip", "x-clip" or "coca"; given: the constructor's
-- keywords; overrides: of CoCa's adapter; scope: of its weights.
local function new(make, given, overrides, scope)
  local maker = makers[make]
      or dpc.fail(("clip: make \"%s\" is none of openai, open_clip, x-clip, "
                   .. "coca"):format(tostring(make)))
  return setmetatable({ net = maker(given, overrides), scope = scope or "" },
                      adapter)
end

local config_options = {
  make = "openai", model = "ViT-L/14",
  base_model_kwargs = options.maybe("table"),
}

-- From AdapterConfig: { make, model, base_model_kwargs }.
local function from_config(given, overrides, scope)
  local o = options.take(given, "AdapterConfig", config_options)
  local sizes = o.base_model_kwargs
  if o.make == "openai" or o.make == "open_clip" then
    local names
    sizes, names = vit.named(o.model, o.make == "openai")
    if not sizes then
      options.fail(o, "model", "no model \"%s\"; there are %s", o.model,
                   table.concat(names, ", "))
    end
  elseif not sizes then
    options.fail(o, nil, "\"base_model_kwargs\" is missing; %s has no "
                 .. "published sizes", o.make)
  end
  return new(o.make, sizes, overrides, scope)
end

local function frozen(self, fn)
  return layers.foreign(function() return layers.within(self.scope, fn) end)
end

function adapter:width() return self.net.dim_latent end
function adapter:image_size() return self.net.image_size end
function adapter:channels() return self.net.channels end
function adapter:max_text_len() return self.net.max_text_len end

-- Tokens i32 [b, n] -> text_embed [b, d], text_encodings [b, n, k].
function adapter:embed_text(tokens)
  return frozen(self, function() return self.net:embed_text(tokens) end)
end

-- Pictures [b, c, h, w] in 0 .. 1, at least as large as CLIP's -> [b, d].
function adapter:embed_image(x)
  local n = self.net.image_size
  if x:dim(3) < n then
    dpc.fail(("clip: pictures of %d pixels; at least %d are wanted")
             :format(x:dim(3), n))
  end
  return frozen(self, function()
    return self.net:embed_image(picture.cubic(x, n))
  end)
end

return { new = new, from_config = from_config }
