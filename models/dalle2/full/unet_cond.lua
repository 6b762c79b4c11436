-- unet_cond.lua -- what a U-Net is told beside the picture: time, the level of
-- noise on the small picture, CLIP's image embedding, text encodings.
--
-- From all of it come a vector t [b, 4 dim], which scales and shifts every
-- block, and tokens to look at: c (time, image), and mid_c (time, image,
-- text) for the two blocks in the middle.  k: cond_dim.

local nn = require "nn"
local layers = require "dalle2.full.layers"

local cond = {}

-- t [b] -> gelu(linear(sinusoid)) [b, 4 dim].
local function hiddens(name, t, o)
  local y = layers.sinusoid(layers.real(t), o.dim)
  return nn.gelu(layers.linear(name .. ".1", y, 4 * o.dim))
end

local function tokens(x, n)
  return x:move("b (n k) -> b n k", { n = n })
end

-- Adds the image embedding [b, e] to t; returns t and its tokens.
local function image(o, t, embed, keep, null)
  if o.add_image_embeds_to_time then
    local y = nn.gelu(layers.linear("to_image_hiddens.0", embed, 4 * o.dim))
    t = t + layers.or_null(keep, y, null.hiddens)
  end
  local n = o.num_image_tokens
  local y = tokens(layers.linear("image_to_tokens.0", embed,
                                 o.cond_dim * n), n)       -- [b, n, k]
  return t, layers.or_null(keep, y, null.embed)
end

-- Encodings [b, n, e] -> [b, max_text_len, k]; null tokens where one is
-- absent, all zeros, or dropped.
local function text(o, encodings, keep, null)
  local b = encodings:dim(0)
  local n = math.min(encodings:dim(1), o.max_text_len)
  local function nulls(from, to)
    return null:slice{ dim = 1, at = from, size = to - from }
        :move("znk->bnk", { b = b })
  end
  encodings = layers.first(encodings, n)
  local y = layers.linear("text_to_cond", encodings, o.cond_dim)
  if keep == 0 then
    return nulls(0, o.max_text_len)
  end
  local seen = layers.present(encodings)                   -- [b, n]
  if keep ~= 1 then
    seen = seen * nn.rows(keep, seen)
  end
  y = nn.like(seen, "bn->bnk", y):where(y, nulls(0, n))    -- [b, n, k]
  return n == o.max_text_len and y
      or y:concat(nulls(n, o.max_text_len), { dim = 1 })
end

-- Learned stand-ins; there are all of them, used or not.
local function null_weights(o)
  local one, k = nn.normal(1), o.cond_dim
  return {
    embed = nn.weight("null_image_embed", { 1, o.num_image_tokens, k }, one),
    hiddens = nn.weight("null_image_hiddens", { 1, 4 * o.dim }, one),
    text = nn.weight("null_text_embed", { 1, o.max_text_len, k }, one),
  }
end

-- Options o of the U-Net, its call's c -> t [b, 4 dim], c, mid_c.
function cond.make(o, time, c)
  local b, null = time:dim(0), null_weights(o)
  local h = hiddens("to_time_hiddens", time, o)            -- [b, 4 dim]
  local all = tokens(layers.linear("to_time_tokens.0", h,
                                   o.cond_dim * o.num_time_tokens),
                     o.num_time_tokens)
  local t = layers.linear("to_time_cond.0", h, 4 * o.dim)
  if o.lowres_noise_cond then             -- its weights are there without, too
    local level = c.lowres_noise_level
    local y = hiddens("to_lowres_noise_cond", level or time, o)
    y = layers.linear("to_lowres_noise_cond.3", y, 4 * o.dim)
    t = level and t + y or t
  end
  local keep_image = layers.keep(b, c.image_drop or 0)
  local keep_text = layers.keep(b, c.text_drop or 0)
  if o.cond_on_image_embeds then
    local y
    t, y = image(o, t, c.image_embed, keep_image, null)
    all = layers.tokens(all, y)
  end
  local mid = all
  if o.cond_on_text_encodings and c.text_encodings then
    mid = layers.tokens(mid, text(o, c.text_encodings, keep_text, null.text))
  end
  return t, layers.layer_norm("norm_cond", all),
      layers.layer_norm("norm_mid_cond", mid)
end

return cond
