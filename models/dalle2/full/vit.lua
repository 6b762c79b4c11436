-- vit.lua -- CLIP in the layout of OpenAI's and OpenCLIP's checkpoints
-- (Radford et al. 2021): ViT and a causal text transformer.
--
-- It is only read here, frozen.  Shapes: b batch, n tokens, k width.

local nn = require "nn"
local along = require "along"
local layers = require "dalle2.full.layers"
local options = require "dalle2.full.options"

local declared = {
  embed_dim = options.size, image_resolution = options.size,
  vision_layers = options.size, vision_width = options.size,
  vision_patch_size = options.size,
  vision_heads = options.maybe("size"),
  context_length = 77, vocab_size = 49408,
  transformer_width = options.size, transformer_heads = options.size,
  transformer_layers = options.size, quick_gelu = true, eos_id = options.count(49407),
}

local function vision(embed, layers_, width, patch, pixels)
  return { embed_dim = embed, vision_layers = layers_, vision_width = width,
           vision_patch_size = patch, image_resolution = pixels or 224 }
end

local function with_text(v, width, heads, layers_)
  v.transformer_width, v.transformer_heads = width, heads
  v.transformer_layers = layers_
  return v
end

-- Published sizes by name; OpenCLIP writes "-" for "/".
local published = {
  ["ViT-B/32"] = with_text(vision(512, 12, 768, 32), 512, 8, 12),
  ["ViT-B/16"] = with_text(vision(512, 12, 768, 16), 512, 8, 12),
  ["ViT-L/14"] = with_text(vision(768, 24, 1024, 14), 768, 12, 12),
  ["ViT-L/14@336px"] = with_text(vision(768, 24, 1024, 14, 336), 768, 12, 12),
  ["ViT-H/14"] = with_text(vision(1024, 32, 1280, 14), 1024, 16, 24),
}
published["ViT-H/14"].vision_heads = 16

local MEAN = { 0.48145466, 0.4578275, 0.40821073 }
local STD = { 0.26862954, 0.26130258, 0.27577711 }

local vit = {}
vit.__index = vit

local function new(given)
  local o = options.take(given, "CLIP", declared)
  return setmetatable({ o = o, dim_latent = o.transformer_width, channels = 3,
                        image_size = o.image_resolution,
                        max_text_len = o.context_length }, vit)
end

-- The options of a published model; quick: OpenAI's approximate GELU.
local function named(name, quick)
  local sizes = published[name] or published[(name:gsub("%-(%d+)$", "/%1"))]
  if not sizes then
    local have = {}
    for key in pairs(published) do
      have[#have + 1] = key
    end
    return nil, have
  end
  local o = { quick_gelu = quick }
  for key, value in pairs(sizes) do
    o[key] = value
  end
  return o
end

---- transformer ----

-- x [b, n, k] over itself; one matrix makes queries, keys and values.
local function attend(x, heads, causal)
  local k, n = x:dim(2), x:dim(1)
  return dpc.scope("attn", function()
    local w = nn.weight("in_proj_weight", { 3 * k, k }, nn.normal(k ^ -0.5))
    local b = nn.weight("in_proj_bias", { 3 * k })
    local all = (x:dot(w, "bnk,mk->bnm") + b)
        :move("b n (t h d) -> b t h n d", { t = 3, h = heads })
    local function part(t)                                 -- [b, h, n, d]
      return all:slice{ dim = 1, at = t, size = 1 }:move("bthnd->bhnd")
    end
    local score = part(0):dot(part(1), "bhnd,bhmd->bhnm")
        * (k // heads) ^ -0.5
    if causal then
      local seen = dpc.iota({ n, n }, 1):le(dpc.iota({ n, n }, 0))
      score = seen:where(score, -1e30)
    end
    local y = nn.softmax(score):dot(part(2), "bhnm,bhmd->bnhd")
        :move("b n h d -> b n (h d)")
    return layers.linear("out_proj", y, k)
  end)
end

local function transformer(x, depth, heads, quick, causal)
  local k, act = x:dim(2), quick and nn.quick_gelu or nn.gelu
  for i = 0, depth - 1 do
    dpc.scope("transformer.resblocks." .. i, function()
      x = x + attend(layers.layer_norm("ln_1", x), heads, causal)
      local y = layers.linear("mlp.c_fc", layers.layer_norm("ln_2", x), 4 * k)
      x = x + layers.linear("mlp.c_proj", act(y), k)
    end)
  end
  return x
end

---- encoders ----

-- Pictures [b, 3, h, w] in 0 .. 1 -> [b, embed].
function vit:encode_image(x)
  local o, k, b = self.o, self.o.vision_width, x:dim(0)
  local function channel(list) return nn.like(dpc.const(list), "c->bchw", x) end
  x = (x - channel(MEAN)) / channel(STD)
  return dpc.scope("visual", function()
    local p = o.vision_patch_size
    local y = layers.conv("conv1", x, k, p, { stride = p, bias = false })
        :move("b k h w -> b (h w) k")
    local cls = nn.weight("class_embedding", { k }, nn.normal(k ^ -0.5))
    y = cls:move("k->bnk", { b = b, n = 1 }):concat(y, { dim = 1 })
    y = y + nn.weight("positional_embedding", { y:dim(1), k },
                      nn.normal(k ^ -0.5))
    y = layers.layer_norm("ln_pre", y)
    y = transformer(y, o.vision_layers, o.vision_heads or k // 64,
                    o.quick_gelu)
    y = layers.layer_norm("ln_post", nn.token_at(y, 0))
    return y:dot(nn.weight("proj", { k, o.embed_dim }, nn.normal(k ^ -0.5)),
                 "bk,kd->bd")
  end)
end

-- Tokens i32 [b, n] -> [b, embed] at the token of the largest number, which
-- ends the text; and what the last norm gives, [b, n, k].
function vit:encode_text(tokens)
  local o, k, n = self.o, self.o.transformer_width, tokens:dim(1)
  local x = layers.embedding("token_embedding", tokens, o.vocab_size, k)
  local place = nn.weight("positional_embedding", { o.context_length, k },
                          nn.normal(0.01))
  if n < o.context_length then
    place = place:slice{ dim = 0, at = 0, size = n }
  end
  x = transformer(x + place, o.transformer_layers, o.transformer_heads,
                  o.quick_gelu, true)
  x = layers.layer_norm("ln_final", x)
  local at = along.argmax(layers.real(tokens), 1)          -- [b]
  local last = along.pick(x, at:move("b->bn", { n = 1 })):move("bnk->bk")
  nn.weight("logit_scale", {}, nn.constant(math.log(1 / 0.07)))
  return last:dot(nn.weight("text_projection", { k, o.embed_dim },
                            nn.normal(k ^ -0.5)), "bk,kd->bd"), x
end

---- as an adapter sees it ----

-- Encodings are zero behind the end of the text, and where a token is 0.
function vit:embed_text(tokens)
  tokens = layers.first(tokens, self.max_text_len)
  local t = layers.real(tokens)                            -- [b, n]
  local embed, x = self:encode_text(tokens)
  local ends = t:eq(self.o.eos_id)
  local past = along.cumsum(ends, 1) - ends                -- ends before it
  local seen = past:eq(0) * (1 - t:eq(0))
  return nn.l2_norm(embed), x * nn.like(seen, "bn->bnk", x)
end

function vit:embed_image(x)
  return nn.l2_norm(self:encode_image(x))
end

return { new = new, named = named, declared = declared }
