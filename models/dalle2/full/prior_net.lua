-- prior_net.lua -- DiffusionPriorNetwork: a causal transformer over
--   text encodings | text embed | time | noised image embed | query
-- whose last token is the prediction (Ramesh et al. 2022, 2.2).
--
-- Padding needs no mask: what is absent, or dropped for classifier-free
-- guidance, is replaced by learned tokens.  Shapes: b batch, k width.

local nn = require "nn"
local kinds = require "kinds"
local layers = require "dalle2.full.layers"
local options = require "dalle2.full.options"
local attention = require "dalle2.full.attention"

local transformer_options = {
  depth = options.size, dim_head = 64, heads = 8, ff_mult = options.positive(4),
  norm_in = false, norm_out = true, attn_dropout = options.share(0),
  ff_dropout = options.share(0),
  final_proj = true, normformer = false, rotary_emb = true,
}

local network_options = options.join(transformer_options, {
  dim = options.size, num_timesteps = options.maybe("size"),
  num_time_embeds = 1, num_image_embeds = 1, num_text_embeds = 1,
  max_text_len = 256, self_cond = false,
})

local network = {}
network.__index = network

local prior_net = { declared = network_options }

-- scope: of its weights; "": the open one.
function prior_net.new(given, scope)
  local o = options.take(given, "DiffusionPriorNetwork", network_options)
  if not o.num_timesteps and (o.dim % 2 ~= 0 or o.dim < 4) then
    options.fail(o, "dim", "dim is %d; for sines of the time an even number "
                 .. "from 4 is wanted", o.dim)
  end
  if o.rotary_emb and o.dim_head < 32 and o.dim_head % 2 ~= 0 then
    options.fail(o, "dim_head", "dim_head is %d; rotary_emb turns pairs: an "
                 .. "even number is wanted", o.dim_head)
  end
  return setmetatable({ o = o, dim = o.dim, self_cond = o.self_cond,
                        scope = scope or "" }, network)
end

---- tokens ----

-- x [b, k] -> n tokens [b, n, k]; one is x itself.
local function spread(name, x, n)
  local y = n > 1 and layers.linear(name .. ".0", x, n * x:dim(1)) or x
  return y:move("b (n k) -> b n k", { n = n })
end

-- t [b] -> [b, n, k]: a table of steps, or sines and three layers.
local function time_tokens(o, t)
  local n = o.num_time_embeds
  local y
  if o.num_timesteps then
    y = layers.embedding("to_time_embeds.0", layers.whole(t),
                         o.num_timesteps, o.dim * n)
  else
    y = layers.sinusoid(layers.real(t), o.dim)
    local hidden = 2 * o.dim * n
    y = dpc.scope("to_time_embeds.0.1.net", function()
      y = nn.silu(layers.linear("0.0", y, hidden))
      y = nn.silu(layers.linear("1.0", y, hidden))
      return layers.linear("2", y, o.dim * n)
    end)
  end
  return y:move("b (n k) -> b n k", { n = n })             -- [b, n, k]
end

-- Encodings [b, n, k], any n or nil -> [b, max_text_len, k]: each absent
-- token is the null token of its place.
local function text_tokens(o, encodings, keep, b)
  local null = nn.weight("null_text_encodings", { 1, o.max_text_len, o.dim },
                         nn.normal(1))
  local n = encodings and math.min(encodings:dim(1), o.max_text_len) or 0
  local function nulls(from, to)                           -- [b, to - from, k]
    return null:slice{ dim = 1, at = from, size = to - from }
        :move("znk->bnk", { b = b })
  end
  if n == 0 or keep == 0 then
    return nulls(0, o.max_text_len)
  end
  encodings = layers.first(encodings, n)
  local seen = layers.present(encodings)                   -- [b, n]
  if keep ~= 1 then
    seen = seen * nn.rows(keep, seen)
  end
  local y = nn.like(seen, "bn->bnk", encodings)
      :where(encodings, nulls(0, n))
  return n == o.max_text_len and y
      or y:concat(nulls(n, o.max_text_len), { dim = 1 })
end

---- the transformer ----

local function transformer(o, x)
  local n = x:dim(1)
  local rotary
  if o.rotary_emb then
    local cos, sin = dpc.scope("layers.0.0", function()
      return attention.rotary(n, math.min(32, o.dim_head))
    end)
    rotary = { cos = cos, sin = sin }
  end
  local bias = attention.position_bias("rel_pos_bias.relative_attention_bias",
                                       n, o.heads)
  if o.norm_in then
    x = layers.gain_norm("init_norm", x)
  end
  for i = 0, o.depth - 1 do
    dpc.scope("layers." .. i, function()
      x = x + dpc.scope("0", function()
        return attention.shared(x, {
          heads = o.heads, dim_head = o.dim_head, cosine = true,
          causal = true, bias = bias, rotary = rotary,
          dropout = o.attn_dropout })
      end)
      x = x + dpc.scope("1", function()
        return attention.feed_forward(x, o.ff_mult, o.ff_dropout,
                                      o.normformer)
      end)
    end)
  end
  if o.norm_out then
    x = layers.gain_norm("norm", x, { stable = true })
  end
  return o.final_proj
      and layers.linear("project_out", x, o.dim, { bias = false }) or x
end

---- forward ----

-- image_embed [b, k] noised, t [b] -> prediction [b, k].
--   c.text_embed [b, k]          c.text_encodings [b, n, k], or nil
--   c.self_cond [b, k], or nil   c.text_drop, c.image_drop  share of samples
--                                whose condition is dropped (0)
function network:forward(image_embed, t, c)
  return layers.within(self.scope, function()
    return self:predict(image_embed, t, c)
  end)
end

function network:predict(image_embed, t, c)
  local o, b = self.o, image_embed:dim(0)
  local what, k = "DiffusionPriorNetwork", o.dim
  kinds.expect(what, "image_embed", image_embed, { b, k }, "dim")
  kinds.expect(what, "text_embed", c.text_embed, { b, k }, "dim")
  kinds.expect(what, "text_encodings", c.text_encodings, { b, false, k },
                "dim")
  kinds.expect(what, "self_cond", c.self_cond, { b, k }, "dim")
  kinds.expect(what, "t", t, { b })
  local keep_text = layers.keep(b, c.text_drop or 0)
  local keep_image = layers.keep(b, c.image_drop or 0)
  local text = spread("to_text_embeds", c.text_embed, o.num_text_embeds)
  local image = spread("to_image_embeds", image_embed, o.num_image_embeds)
  local null_text = nn.weight("null_text_embeds",
                              { 1, o.num_text_embeds, o.dim }, nn.normal(1))
  local null_image = nn.weight("null_image_embed", { 1, o.dim },
                               nn.normal(1))
  null_image = null_image:move("zk->znk", { n = o.num_image_embeds })
  local query = nn.weight("learned_query", { o.dim }, nn.normal(1))
      :move("k->bnk", { b = b, n = 1 })
  if self.self_cond then
    local past = c.self_cond or dpc.const(0, { b, o.dim })
    query = nn.token(past):concat(query, { dim = 1 })
  end
  local x = layers.tokens(
      text_tokens(o, c.text_encodings, keep_text, b),
      layers.or_null(keep_text, text, null_text), time_tokens(o, t),
      layers.or_null(keep_image, image, null_image), query)
  x = dpc.scope("causal_transformer", function()
    return transformer(o, x)
  end)
  return nn.token_at(x, x:dim(1) - 1)                      -- [b, k]
end

-- With classifier-free guidance: scale 1 is none.
function network:guided(image_embed, t, c, scale)
  local with = self:forward(image_embed, t, c)
  if not scale or scale == 1 then
    return with
  end
  local without = self:forward(image_embed, t, {
    text_embed = c.text_embed, text_encodings = c.text_encodings,
    self_cond = c.self_cond, text_drop = 1, image_drop = 1 })
  return without + (with - without) * scale
end

return prior_net
