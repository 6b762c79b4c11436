-- xclip.lua -- x-clip's CLIP: two transformers and a contrastive loss.
--
-- The loss takes exponentials of similarities as they are, with no largest
-- one taken off, and adds 1e-20 inside of logarithms.
-- Shapes: b batch, n tokens, k width, d latent.

local nn = require "nn"
local along = require "along"
local layers = require "dalle2.full.layers"
local options = require "dalle2.full.options"
local mlm = require "dalle2.full.xclip_mlm"

local declared = options.join(mlm.declared, {
  dim_text = 512, dim_image = 512, dim_latent = 512, num_text_tokens = 10000,
  text_enc_depth = 6, text_seq_len = 256, text_heads = 8, text_dim_head = 64,
  text_has_cls_token = true, text_pad_id = 0, text_rotary_pos_emb = false,
  text_causal_mask = false, text_eos_id = options.maybe("count"),
  text_encode_without_mask = false, visual_enc_depth = 6, visual_heads = 8,
  visual_dim_head = 64, visual_image_size = 256, visual_patch_size = 32,
  visual_patch_dropout = options.share(0.5), visual_has_cls_token = true, channels = 3,
  use_all_token_embeds = false, downsample_image_embeds = false,
  decoupled_contrastive_learning = false, extra_latent_projection = false,
  use_mlm = false, text_ssl_loss_weight = 0.05, use_visual_ssl = false,
  image_ssl_loss_weight = 0.05, multiview_loss_weight = 0.1,
  checkpoint_during_training = false, sim_reg_loss_weight = 0.0,
})

local clip = {}
clip.__index = clip
local bare = { bias = false }

local function check(o)
  if not (o.use_all_token_embeds or o.visual_has_cls_token
          or o.text_has_cls_token) then
    options.fail(o, "use_all_token_embeds", "without CLS tokens "
                 .. "use_all_token_embeds must be set")
  elseif o.text_causal_mask and not o.text_eos_id then
    options.fail(o, "text_causal_mask", "text_causal_mask needs text_eos_id")
  elseif o.text_causal_mask and o.text_rotary_pos_emb then
    options.fail(o, "text_rotary_pos_emb", "rotary positions count a CLS "
                 .. "token, and a causal text has none")
  elseif o.use_all_token_embeds
      and o.text_has_cls_token == o.text_causal_mask then
    options.fail(o, "text_has_cls_token", "text_has_cls_token is %s, and a "
                 .. "text that is%s causal has %s", o.text_has_cls_token,
                 o.text_causal_mask and "" or " not",
                 o.text_causal_mask and "none" or "one")
  elseif o.downsample_image_embeds and not o.use_all_token_embeds then
    options.fail(o, "downsample_image_embeds", "downsample_image_embeds "
                 .. "wants use_all_token_embeds")
  elseif o.visual_image_size % o.visual_patch_size ~= 0 then
    options.fail(o, "visual_patch_size", "pictures of %d pixels are no whole "
                 .. "number of patches of %d", o.visual_image_size,
                 o.visual_patch_size)
  elseif o.use_visual_ssl then
    options.fail(o, "use_visual_ssl", "the self-supervised loss on pictures "
                 .. "is not built")
  elseif o.visual_patch_dropout < 0 or o.visual_patch_dropout >= 1 then
    options.fail(o, "visual_patch_dropout", "visual_patch_dropout is %g; from "
                 .. "0 to below 1", o.visual_patch_dropout)
  end
end

local function new(given)
  local o = options.take(given, "CLIP", declared)
  check(o)
  return setmetatable({ o = o, dim_latent = o.dim_latent,
                        image_size = o.visual_image_size,
                        channels = o.channels, max_text_len = o.text_seq_len },
                      clip)
end

---- transformer ----

-- x [b, h, n, d]: of its first r elements the first half and the second are
-- turned together.
local function rotated(x, cos, sin)
  local r, d = 2 * cos:dim(1), x:dim(3)
  local a, b = layers.halves(x:slice{ dim = 3, at = 0, size = r }, 3)
  local y = (a * cos - b * sin):concat(b * cos + a * sin, { dim = 3 })
  return r == d and y
      or y:concat(x:slice{ dim = 3, at = r, size = d - r }, { dim = 3 })
end

-- x [b, n, k]; o: heads, dim_head, causal; mask [b, n] or nil: 1 where a token
-- may be looked at; rotary { cos, sin }: for queries, keys and values.
local function attend(x, o, mask, rotary)
  local h, d, n = o.heads, o.dim_head, x:dim(1)
  local all = layers.linear("to_qkv", x, 3 * h * d, bare)
      :move("b n (t h d) -> b t h n d", { t = 3, h = h })
  local function part(t)                                   -- [b, h, n, d]
    local y = all:slice{ dim = 1, at = t, size = 1 }:move("bthnd->bhnd")
    return rotary and rotated(y, rotary.cos, rotary.sin) or y
  end
  local score = part(0):dot(part(1), "bhnd,bhmd->bhnm") * d ^ -0.5
  if mask then
    score = nn.like(mask, "bm->bhnm", score):where(score, -1e30)
  end
  if o.causal then
    local seen = dpc.iota({ n, n }, 1):le(dpc.iota({ n, n }, 0))
    score = seen:where(score, -1e30)
  end
  local y = nn.softmax(score):dot(part(2), "bhnm,bhmd->bnhd")
      :move("b n h d -> b n (h d)")
  return layers.gain_norm("to_out.1", layers.linear("to_out.0", y, x:dim(-1),
                                                    bare))
end

local function feed_forward(x)
  local k = x:dim(-1)
  return dpc.scope("net", function()
    local value, gate = layers.halves(layers.linear("0", x, 8 * k, bare), 2)
    local y = layers.gain_norm("2", value * nn.gelu(gate))
    return layers.linear("4", y, k, bare)
  end)
end

-- o: depth too.
local function transformer(x, o, mask, rotary)
  return dpc.scope("transformer", function()
    x = layers.gain_norm("norm_in", x)
    for i = 0, o.depth - 1 do
      dpc.scope("layers." .. i, function()
        local y = layers.gain_norm("0.norm", x)
        x = x + dpc.scope("0.fn", function()
          return attend(y, o, mask, rotary)
        end)
        local z = layers.gain_norm("1.norm", x)
        x = x + dpc.scope("1.fn", function() return feed_forward(z) end)
      end)
    end
    return layers.gain_norm("norm_out", x)
  end)
end

---- encoders ----

local function rotary(n, r)
  local freqs = {}
  for j = 0, r // 2 - 1 do
    freqs[j + 1] = 10000 ^ (-2 * j / r)
  end
  local angle = dpc.iota({ n, r // 2 }, 0) * dpc.const(freqs)
  return { cos = angle:cos(), sin = angle:sin() }
end

-- The first n rows of a learned table of positions [most, k].
local function positions(name, n, most, k)
  return dpc.scope(name, function()
    local w = nn.weight("weight", { most, k }, nn.normal(1))
    return n == most and w or w:slice{ dim = 0, at = 0, size = n }
  end)
end

-- Tokens i32 [b, n] -> [b, 1 + n, k], or [b, n, k] where it is causal.
-- mask [b, n] or nil.
function clip:text(tokens, mask)
  local o, b, n = self.o, tokens:dim(0), tokens:dim(1)
  return dpc.scope("text_transformer", function()
    local words = o.num_text_tokens + (o.use_mlm and 1 or 0)
    local x = layers.embedding("token_emb", tokens, words, o.dim_text)
    local turn
    if o.text_rotary_pos_emb then
      turn = rotary(n + 1, math.min(o.text_dim_head, 32))
    else
      x = x + positions("abs_pos_emb", n, o.text_seq_len, o.dim_text)
    end
    if not o.text_causal_mask then
      local cls = nn.weight("cls_token", { o.dim_text }, nn.normal(1))
      x = cls:move("k->bnk", { b = b, n = 1 }):concat(x, { dim = 1 })
      mask = mask and dpc.const(1, { b, 1 }):concat(mask, { dim = 1 })
    end
    return transformer(x, { heads = o.text_heads, dim_head = o.text_dim_head,
                            depth = o.text_enc_depth,
                            causal = o.text_causal_mask }, mask, turn)
  end)
end

-- Some of the tokens of x [b, n, k], chosen at random, in training.
local function dropped(x, p)
  if p == 0 or not layers.is_training() then
    return x
  end
  local b, n = x:dim(0), x:dim(1)
  local kept = math.max(1, math.floor(n * (1 - p)))
  return along.pick(x, along.top(dpc.random("normal", { b, n }), kept, 1))
end

-- Pictures [b, c, h, w] -> [b, 1 + n, k]: the first token is the mean.
function clip:image(x)
  local o, p = self.o, self.o.visual_patch_size
  if x:dim(1) ~= o.channels or x:dim(2) ~= self.image_size
      or x:dim(3) ~= self.image_size then
    dpc.fail(("CLIP: pictures [%d, %d, %d]; [%d, %d, %d] are wanted")
             :format(x:dim(1), x:dim(2), x:dim(3), o.channels,
                     self.image_size, self.image_size))
  end
  return dpc.scope("visual_transformer", function()
    local y = x:move("b c (h p) (w q) -> b (h w) (p q c)", { p = p, q = p })
    y = layers.linear("to_tokens.1", y, o.dim_image)       -- [b, n, k]
    local n = y:dim(1)
    y = y + positions("pos_emb", n, n, o.dim_image)
    y = dropped(y, o.visual_patch_dropout)
    y = transformer(y, { heads = o.visual_heads, depth = o.visual_enc_depth,
                         dim_head = o.visual_dim_head })
    local cls = layers.linear("to_cls_tokens.1", nn.mean(y, "bnk->bk"),
                              o.dim_image, bare)
    return nn.token(cls):concat(y, { dim = 1 })
  end)
end

---- latents ----

-- Like `linear` without bias; where `as` is given it starts equal to that.
local function projection(name, k, out, as)
  return dpc.scope(name, function()
    return nn.weight("weight", { out, k }, as or nn.uniform(k ^ -0.5))
  end)
end

local function project(x, w)
  local sig = #x:dims() == 2 and "bk,dk->bd" or "bnk,dk->bnd"
  return nn.l2_norm(x:dot(w, sig))
end

-- Tokens [b, n, k] of a square -> a quarter of them, [b, n / 4, d].
local function downsampled(name, x, d)
  local k, side = x:dim(2), math.floor(x:dim(1) ^ 0.5 + 0.5)
  return dpc.scope(name, function()
    local y = x:move("b (h w) k -> b k h w", { h = side })
    y = layers.conv("1", y, k, 4, { stride = 2, pad = 1, groups = k,
                                    bias = false })
    return nn.l2_norm(layers.conv("2", y, d, 1):move("bkhw->b(hw)k"))
  end)
end

-- Both modalities' latents, once or, with an extra projection, twice.
-- text, image: encodings, or tokens.
function clip:latents(text, image)
  local o = self.o
  local wt = projection("to_text_latent", o.dim_text, o.dim_latent)
  local we = projection("to_text_latent_extra", o.dim_text, o.dim_latent, wt)
  local t, i, t2, i2 = project(text, wt), nil, nil, nil
  if o.downsample_image_embeds then
    i = downsampled("to_visual_latent", image, o.dim_latent)
    i2 = downsampled("to_visual_latent_extra", image, o.dim_latent)
  else
    local wi = projection("to_visual_latent", o.dim_image, o.dim_latent)
    local wx = projection("to_visual_latent_extra", o.dim_image, o.dim_latent,
                          wi)
    i, i2 = project(image, wi), project(image, wx)
  end
  t2 = project(text, we)
  if not o.extra_latent_projection then
    t2, i2 = t, i
  end
  return t, i, t2, i2
end

---- loss ----

local function log(x) return (x + 1e-20):log() end

-- 1 on the diagonal of [n, n], else 0.
local function eye(n)
  return dpc.iota({ n, n }, 0):eq(dpc.iota({ n, n }, 1))
end

-- -log of the right one's share of each row; f32 [].
local function row_loss(o, x)
  local e = x:exp()                                        -- [b, b]
  local right = (e * eye(x:dim(0))):move("ij->i")
  if o.decoupled_contrastive_learning then
    e = eye(x:dim(0)):where(0, e)
  end
  return nn.mean(log(e:move("ij->i")) - log(right))
end

-- Similarities [b, b] both ways of one text's and one image's latents; mask
-- [b, n] of the text's tokens.
function clip:similar(t, i, t2, i2, mask)
  local o = self.o
  local warm = nn.weight("temperature", {}, nn.ones):exp() -- []
  if not o.use_all_token_embeds then
    local text = t:dot(i, "td,id->ti") * warm
    local image = t2:dot(i2, "td,id->it") * warm
    return text, image
  end
  local each = t:dot(i, "xtd,yid->xyti") * warm
  local other = o.extra_latent_projection
      and t2:dot(i2, "xtd,yid->xyti") * warm or each
  local best = each:max("xyti->xyt")
  local seen = nn.like(mask, "xt->xyt", best)
  local text = (best * seen):move("xyt->xy")
      / nn.like(mask:move("xt->x"):maximum(1e-6), "x->xy", best)
  local hidden = nn.like(mask, "xt->xyti", other):where(other, -1e30)
  return text, nn.mean(hidden:max("xyti->xyi"), "xyi->xy")
end

-- Mean squared difference of similarities within texts and within images,
-- apart from those with themselves.
local function regularity(t, i)
  local b = t:dim(0)
  local d = t:dot(t, "xd,yd->xy") - i:dot(i, "xd,yd->xy")
  local off = eye(b):where(0, d * d)
  return off:move("xy->") * (1 / (b * b - b))
end

-- What stands for the whole in encodings [b, 1 + n, k]: the first token, or,
-- in fine-grained CLIP, all of them.
local function chosen(o, x, has_cls)
  if not o.use_all_token_embeds then
    return nn.token_at(x, 0)
  end
  return has_cls and x:slice{ dim = 1, at = 1, size = x:dim(1) - 1 } or x
end

-- Moves the token of the first end-of-text of x [b, n, k] to the front.
local function end_first(o, x, tokens)
  local b, n = tokens:dim(0), tokens:dim(1)
  local at = along.argmax(layers.real(tokens):eq(o.text_eos_id), 1) -- [b]
  local place = dpc.iota({ b, n }, 1)                      -- [b, n]
  local end_ = at:move("b->bn", { n = n })
  local index = place:eq(0):where(end_, place - place:le(end_))
  return along.pick(x, index)
end

-- text i32 [b, n], image [b, c, h, w] -> f32 [].  more: aug_text, aug_image:
-- lists of further views.
function clip:loss(text, image, more)
  local o = self.o
  local texts = { text, table.unpack(more and more.aug_text or {}) }
  local images = { image, table.unpack(more and more.aug_image or {}) }
  local ssl = o.use_mlm and mlm.loss(self, text)
  local all, masks = {}, {}
  for j, words in ipairs(texts) do
    masks[j] = 1 - layers.real(words):eq(o.text_pad_id)    -- [b, n]
    local x = self:text(words, not o.text_encode_without_mask and masks[j])
    if o.text_causal_mask then
      x = end_first(o, x, words)
    end
    texts[j] = chosen(o, x, o.text_has_cls_token)
  end
  for j, picture in ipairs(images) do
    images[j] = chosen(o, self:image(picture), o.visual_has_cls_token)
  end
  local first, rest, regular
  for j, t in ipairs(texts) do
    for _, i in ipairs(images) do
      local a, b, a2, b2 = self:latents(t, i)
      local x, y = self:similar(a, b, a2, b2, masks[j])
      local cost = (row_loss(o, x) + row_loss(o, y)) * 0.5
      all[#all + 1] = cost
      regular = regular or o.sim_reg_loss_weight > 0
          and (regularity(a, b) + regularity(a2, b2)) * 0.5
    end
  end
  first = table.remove(all, 1)
  for _, cost in ipairs(all) do
    rest = rest and rest + cost or cost
  end
  local other = rest and o.multiview_loss_weight or 0
  local own = ssl and o.text_ssl_loss_weight or 0
  local loss = first * (1 - own - other)
  loss = ssl and loss + ssl * own or loss
  loss = rest and loss + rest * (other / #all) or loss
  return regular and loss + regular * o.sim_reg_loss_weight or loss
end

---- as an adapter sees it ----

-- Tokens i32 [b, n] -> text_embed [b, d], text_encodings [b, n, k]; padding
-- is zero.
function clip:embed_text(tokens)
  if self.o.text_causal_mask then
    dpc.fail("CLIP: the adapter's encodings of a causal text have one token "
             .. "less than its mask")
  end
  tokens = layers.first(tokens, self.max_text_len)
  local x = self:text(tokens)
  local w = projection("to_text_latent", self.o.dim_text, self.dim_latent)
  local words = x:slice{ dim = 1, at = 1, size = x:dim(1) - 1 }
  local seen = 1 - layers.real(tokens):eq(0)               -- [b, n]
  return project(nn.token_at(x, 0), w), words * nn.like(seen, "bn->bnk", words)
end

-- Pictures of the right size -> [b, d].
function clip:embed_image(x)
  local y = nn.token_at(self:image(x), 0)
  return project(y, projection("to_visual_latent", self.o.dim_image,
                               self.dim_latent))
end

return { new = new, declared = declared }
