-- coca.lua -- CoCa's encoders (Yu et al. 2022), as coca-pytorch has them: text
-- by parallel blocks, pictures by pooling the tokens of an image encoder.
--
-- The image encoder is the caller's: embed_image takes its tokens.
-- Shapes: b batch, n tokens, k width.

local nn = require "nn"
local layers = require "dalle2.full.layers"
local options = require "dalle2.full.options"

local declared = {
  dim = options.size, num_tokens = options.size,
  unimodal_depth = options.size, multimodal_depth = options.size,
  dim_latents = options.maybe("size"), image_dim = options.maybe("size"),
  num_img_queries = 256, dim_head = 64, heads = 8, ff_mult = 4,
  caption_loss_weight = 1.0, contrastive_loss_weight = 1.0, pad_id = 0,
}

local override_options = {
  image_size = options.size, image_channels = options.size,
  max_text_len = options.size,
}

local coca = {}
coca.__index = coca
local bare = { bias = false }

-- overrides: what CLIP would know of itself.
local function new(given, overrides)
  local o = options.take(given, "CoCa", declared)
  local w = options.take(overrides, "CoCaAdapter", override_options)
  return setmetatable({ o = o, dim_latent = o.dim, image_size = w.image_size,
                        channels = w.image_channels,
                        max_text_len = w.max_text_len }, coca)
end

-- x [b, n, k] with gain "gamma".
local function norm(name, x)
  return layers.gain_norm(name, x, { gain = "gamma" })
end

-- x [b, h, n, d] or [b, n, d]: halves turned by the position.
local function rotated(x, cos, sin)
  local dim = #x:dims() - 1
  local a, b = layers.halves(x, dim)
  return (a * cos - b * sin):concat(b * cos + a * sin, { dim = dim })
end

local function rotary(n, d)
  local freqs = {}
  for j = 0, d // 2 - 1 do
    freqs[j + 1] = 10000 ^ (-2 * j / d)
  end
  local angle = dpc.iota({ n, d // 2 }, 0) * dpc.const(freqs)
  return angle:cos(), angle:sin()
end

local function swiglu(x)
  local value, gate = layers.halves(x, 2)
  return nn.silu(gate) * value
end

-- Attention and feed-forward side by side, on x [b, n, k], residual; causal,
-- one key and value for all heads.  mask [b, n, n] or nil.
local function block(o, x, mask)
  local k, n, h, d = x:dim(2), x:dim(1), o.heads, o.dim_head
  return dpc.scope("fn", function()
    local inner = k * o.ff_mult
    local all = layers.linear("fused_attn_ff_proj", norm("norm", x),
                              h * d + 2 * d + 2 * inner, bare)
    local function part(at, size)
      return all:slice{ dim = 2, at = at, size = size }
    end
    local cos, sin = rotary(n, d)
    local q = rotated(part(0, h * d):move("b n (h d) -> b h n d", { h = h }),
                      cos, sin)
    local key = rotated(part(h * d, d), cos, sin)          -- [b, n, d]
    local score = q:dot(key, "bhnd,bmd->bhnm") * d ^ -0.5
    local seen = dpc.iota({ n, n }, 1):le(dpc.iota({ n, n }, 0))
    score = seen:where(score, -1e30)
    if mask then
      score = nn.like(mask, "bnm->bhnm", score):where(score, -1e30)
    end
    local y = nn.softmax(score):dot(part(h * d + d, d), "bhnm,bmd->bnhd")
        :move("b n h d -> b n (h d)")
    local ff = swiglu(part(h * d + 2 * d, 2 * inner))
    return layers.linear("attn_out", y, k, bare)
        + layers.linear("ff_out.1", ff, k, bare) + x
  end)
end

-- Queries x [b, n, k] over context [b, m, k'].
local function pool(name, o, x, context)
  local h, d = o.heads, o.dim_head
  return dpc.scope(name, function()
    local y = norm("norm", x)
    context = norm("context_norm", context)
    local q = layers.linear("to_q", y, h * d, bare)
        :move("b n (h d) -> b h n d", { h = h })
    local key, value = layers.halves(
        layers.linear("to_kv", context, 2 * d, bare), 2)
    local score = q:dot(key, "bhnd,bmd->bhnm") * d ^ -0.5
    y = nn.softmax(score):dot(value, "bhnm,bmd->bnhd")
        :move("b n h d -> b n (h d)")
    return layers.linear("to_out", y, x:dim(2), bare)
  end)
end

-- The last token, CLS, does not look at padding; tokens do.
local function cls_mask(tokens, pad)
  local b, n = tokens:dim(0), tokens:dim(1)
  local seen = 1 - layers.real(tokens):eq(pad)             -- [b, n]
  local own = seen:concat(dpc.const(1, { b, 1 }), { dim = 1 })
  return dpc.const(1, { b, n, n + 1 })
      :concat(own:move("bm->bnm", { n = 1 }), { dim = 1 }) -- [b, n + 1, n + 1]
end

-- Tokens i32 [b, n] -> text_embed [b, k], text_encodings [b, n, k]; padding is
-- zero.
function coca:embed_text(tokens)
  local o, k = self.o, self.o.dim
  tokens = layers.first(tokens, self.max_text_len)
  local b, n = tokens:dim(0), tokens:dim(1)
  local x = layers.embedding("token_emb", tokens, o.num_tokens, k)
  local cls = nn.weight("text_cls_token", { k }, nn.normal(1))
  x = x:concat(cls:move("k->bnk", { b = b, n = 1 }), { dim = 1 })
  local mask = cls_mask(tokens, o.pad_id)
  for i = 0, o.unimodal_depth - 1 do
    x = dpc.scope("unimodal_layers." .. i, function()
      return block(o, x, mask)
    end)
  end
  local words = layers.first(x, n)
  local seen = 1 - layers.real(tokens):eq(0)
  return norm("text_cls_norm", nn.token_at(x, n)),
      words * nn.like(seen, "bn->bnk", words)
end

-- Tokens [b, m, k'] of the image encoder -> [b, k].
function coca:embed_image(tokens)
  local o, k = self.o, self.o.dim
  if #tokens:dims() ~= 3 then
    dpc.fail("CoCa: pictures go through an image encoder of your own; give "
             .. "its tokens [b, m, k]")
  end
  local q = nn.weight("img_queries", { o.num_img_queries + 1, k },
                      nn.normal(1)):move("nk->bnk", { b = tokens:dim(0) })
  local y = norm("img_attn_pool_norm", pool("img_attn_pool", o, q, tokens))
  return nn.token_at(y, 0)
end

return { new = new, declared = declared }
