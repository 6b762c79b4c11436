-- mmdit.lua -- the transformer of Qwen-Image: two streams, image and text,
-- with weights of their own, that meet in one softmax (Esser et al. 2024,
-- Stable Diffusion 3, 4; Qwen-Image Technical Report 2025, 2.4).
--
-- Parameters are called as in the checkpoints of `QwenImageTransformer2DModel`,
-- options as in its config.json.  In the shapes: b batch, n image tokens (the
-- target's, then those of each reference), m text tokens, h heads, d width of
-- a head, k = h d.

local nn = require "nn"
local kinds = require "kinds"
local layers = require "layers"
local rope = require "rope"
local flow = require "flow"
local options = require "options"

local mmdit = {}
local linear, part = layers.linear, layers.part

---- options ----

-- Of the constructor, with its defaults; then what it takes and ignores.
local defaults = {
  patch_size = 2, in_channels = 64, out_channels = 16, num_layers = 60,
  attention_head_dim = 128, num_attention_heads = 24,
  joint_attention_dim = 3584, guidance_embeds = false,
  axes_dims_rope = { 16, 56, 56 }, zero_cond_t = false,
  use_additional_t_cond = false, use_layer3d_rope = false,
}
local ignored = { pooled_projection_dim = true }

-- Beside those of the constructor: whose reading of the weights.
defaults.import = "diffusers"

local function fail(form, ...)
  dpc.fail(("qwen_image: " .. form):format(...))
end

-- What of the options does not go together, at the key that says so.
local function options_check(full, o)
  local function wrong(key, form, ...)
    options.fail("qwen_image", o, key, form, ...)
  end
  local width, axes = 0, full.axes_dims_rope
  for i, d in ipairs(axes) do
    width = width + d
    if d % 2 ~= 0 then
      wrong("axes_dims_rope", "axes_dims_rope[%d] is %d; pairs are turned: an "
            .. "even number is wanted", i - 1, d)
    end
  end
  if #axes ~= 3 then
    wrong("axes_dims_rope", "axes_dims_rope has %d numbers; three are wanted, "
          .. "of frame, row and column", #axes)
  elseif width ~= full.attention_head_dim then
    wrong("axes_dims_rope", "axes_dims_rope add up to %d, attention_head_dim "
          .. "is %d", width, full.attention_head_dim)
  end
  if full.guidance_embeds then
    wrong("guidance_embeds", "guidance_embeds: the original declares it, and "
          .. "has no layer for it")
  end
end

-- The options o made whole; a key that nobody takes is an error.
-- import: whose reading, where o does not say.
function mmdit.options(o, import)
  local full = options.whole("qwen_image", o, "QwenImageTransformer2DModel",
                             defaults, ignored,
                             { out_channels = "in_channels" })
  full.import = o and o.import or import or full.import
  options_check(full, o)
  full.act = layers.activation[full.import]
      or fail("import \"%s\" is neither \"diffusers\" nor \"diffsynth\"",
              full.import)
  full.width = full.num_attention_heads * full.attention_head_dim
  return full
end

---- time ----

-- t [b] in 0..1 -> [b, 256]: cosines, then sines, of 1000 t.
local function waves(t)
  local freq = {}
  for i = 0, 127 do
    freq[i + 1] = 1000 * math.exp(-math.log(10000) * i / 128)
  end
  local angle = t:move("b->bi", { i = 128 }) * dpc.const(freq)
  return angle:cos():concat(angle:sin(), { dim = 1 })
end

-- t [b], kind i32 [b] (is the picture RGB?) where the option asks -> [b, k].
local function time_embedding(o, t, kind)
  return dpc.scope("time_text_embed", function()
    local y = dpc.scope("timestep_embedder", function()
      local h = nn.silu(linear("linear_1", waves(t), o.width))
      return linear("linear_2", h, o.width)
    end)
    if o.use_additional_t_cond then
      kind = kind or fail("use_additional_t_cond: additional_t_cond is missing")
      y = y + dpc.scope("addition_t_embedding", function()
        return nn.weight("weight", { 2, o.width }, nn.normal(1)):take(kind)
      end)
    end
    return y                                               -- [b, k]
  end)
end

---- modulation ----

-- v [b, k] for each of x's tokens; past [n]: 1 where a token belongs to a
-- reference, whose row of v [2 b, k] is the later one.
local function rows(v, x, past)
  if not past then
    return nn.like(v, "bk->bnk", x)
  end
  local now = v:slice{ dim = 0, at = 0, size = x:dim(0) }
  local zero = v:slice{ dim = 0, at = x:dim(0), size = x:dim(0) }
  return past:move("n->bnk", { b = x:dim(0), k = x:dim(2) })
      :where(nn.like(zero, "bk->bnk", x), nn.like(now, "bk->bnk", x))
end

-- Shift, scale and gate, twice: temb [b, k] -> [b, 6, k], or the first `n`.
local function modulation(name, temb, o, n)
  return layers.apart(linear(name, nn.silu(temb), 6 * o.width,
                             { init = o.init_mod, rows = n and n * o.width }),
                      n or 6)
end

-- x [b, n, k] normed, scaled and shifted by rows `at` and `at + 1` of mod.
local function modulated(x, mod, at, past)
  return layers.norm(x) * (rows(part(mod, at + 1), x, past) + 1)
      + rows(part(mod, at), x, past)
end

---- the block ----

local function heads(x, o)                                 -- [b, n, h, d]
  return layers.apart(x, o.num_attention_heads)
end

-- Query, key, value of one stream, [b, n, h, d] each: x by layers of these
-- names, the first two normed and turned.
local function projected(x, o, turn, names)
  local q, k, v, norm_q, norm_k = table.unpack(names)
  return rope.turned(layers.rms_norm(norm_q, heads(linear(q, x, o.width), o)),
                     turn),
      rope.turned(layers.rms_norm(norm_k, heads(linear(k, x, o.width), o)),
                  turn),
      heads(linear(v, x, o.width), o)
end

-- Queries [b, n, h, d] among keys and values [b, s, h, d] -> [b, n, h d].
-- seen [b, s]: 1 where a key may be looked at; nil: all.
local function attention(q, key, value, seen)
  return nn.attend(q * q:dim(3) ^ -0.5, key, value,
                   { mask = seen and seen:move("bs->bns", { n = 1 }) })
      :move("b n h d -> b n (h d)")
end

-- Each stream's queries among the keys of both, text first.  Two softmaxes
-- over the same keys are the rows of one; what nobody reads of the text's is
-- never computed.
local function joint(image, text, o, turn, seen)
  return dpc.scope("attn", function()
    local q, k, v = projected(image, o, turn.image,
        { "to_q", "to_k", "to_v", "norm_q", "norm_k" })
    local tq, tk, tv = projected(text, o, turn.text,
        { "add_q_proj", "add_k_proj", "add_v_proj", "norm_added_q",
          "norm_added_k" })
    local key = tk:concat(k, { dim = 1 })                  -- [b, m + n, h, d]
    local value = tv:concat(v, { dim = 1 })
    return linear("to_out.0", attention(q, key, value, seen), o.width),
        linear("to_add_out", attention(tq, key, value, seen), o.width)
  end)
end

local function mlp(name, x, o)
  return dpc.scope(name, function()
    local h = o.act(linear("net.0.proj", x, 4 * o.width))
    return linear("net.2", h, o.width)
  end)
end

-- x [b, n, k] after attention a and after its MLP, gated by mod.
local function stream(name, x, a, mod, o, past)
  x = x + rows(part(mod, 2), x, past) * a
  return x + rows(part(mod, 5), x, past)
      * mlp(name, modulated(x, mod, 3, past), o)
end

-- image [b, n, k], text [b, m, k], temb [b, k] (twice b where past) -> both
-- streams.  o: options; turn: { image, text } of rope.turns; seen [b, m + n];
-- past [n]; last: the text ends here, as keys and values of the image, and
-- what else it would go through is made but not used.
function mmdit.block(image, text, temb, o, turn, seen, past, last)
  local now = past and temb:slice{ dim = 0, at = 0, size = image:dim(0) }
      or temb
  local im = modulation("img_mod.1", temb, o)              -- [b, 6, k]
  local tm = modulation("txt_mod.1", now, o, last and 2)
  local ia, ta = joint(modulated(image, im, 0, past), modulated(text, tm, 0),
                       o, turn, seen)
  image = stream("img_mlp", image, ia, im, o, past)
  if last then
    mlp("txt_mlp", text, o)
    return image
  end
  return image, stream("txt_mlp", text, ta, tm, o)
end

---- the network ----

local function tokens(images)
  local n = 0
  for _, s in ipairs(images) do
    n = n + s[1] * s[2] * s[3]
  end
  return n
end

-- Inputs are as wide as the options say.
local function inputs_check(o, x)
  local b, m = x.hidden_states:dim(0), x.encoder_hidden_states:dim(1)
  local function expect(name, dims, option)
    kinds.expect("qwen_image", name, x[name], dims, option)
  end
  expect("hidden_states", { b, false, o.in_channels }, "in_channels")
  expect("encoder_hidden_states", { b, false, o.joint_attention_dim },
         "joint_attention_dim")
  expect("encoder_hidden_states_mask", { b, m })
  expect("timestep", { b })
  expect("additional_t_cond", { b })
  if x.additional_t_cond and not o.use_additional_t_cond then
    fail("additional_t_cond is given; use_additional_t_cond is not set")
  end
  for i, s in ipairs(x.img_shapes or fail("img_shapes are missing")) do
    if type(s) ~= "table" or #s ~= 3 or not kinds.list(s, "size") then
      fail("img_shapes[%d]: frames, rows and columns are wanted", i - 1)
    end
  end
end

-- 1 for tokens of references, f32 [n].
local function references(images)
  local first = tokens{ images[1] }
  return 1 - dpc.iota({ tokens(images) }, 0):lt(first)
end

-- mask [b, m] of any type, 1 at words -> [b, m + n]: the image is always seen.
local function seen_of(mask, n)
  mask = dpc.mask(mask:dtype() == "f32" and mask or mask:cast("f32"))
  return mask:concat(dpc.const(1, { mask:dim(0), n }), { dim = 1 })
end

-- The velocity at every image token.
--   hidden_states [b, n, in_channels]       timestep [b] in 0..1
--   encoder_hidden_states [b, m, joint_attention_dim]
--   encoder_hidden_states_mask [b, m], 1 at words; nil: all are
--   additional_t_cond i32 [b]                 img_shapes { { f, h, w }, ... }
-- -> [b, n, patch_size^2 out_channels]
function mmdit.forward(o, x)
  local hidden, words = x.hidden_states, x.encoder_hidden_states
  local images = x.img_shapes
  for _, name in ipairs{ "hidden_states", "encoder_hidden_states",
                         "timestep" } do
    local _ = x[name] or fail("%s is missing", name)
  end
  inputs_check(o, x)
  local n, m = hidden:dim(1), words:dim(1)
  if tokens(images) ~= n then
    fail("img_shapes are %d tokens, hidden_states has %d", tokens(images), n)
  end
  local image = linear("img_in", hidden, o.width)          -- [b, n, k]
  local text = linear("txt_in", layers.rms_norm("txt_norm", words), o.width)
  local t, kind, past = x.timestep, x.additional_t_cond, nil
  if o.zero_cond_t then
    t = t:concat(t * 0, { dim = 0 })                       -- [2 b]
    kind = kind and kind:concat(kind, { dim = 0 })
    past = references(images)
  end
  local temb = time_embedding(o, t, kind)                  -- [b, k]
  local turn = {}
  turn.image, turn.text = rope.turns(images, m, o.axes_dims_rope,
                                     o.use_layer3d_rope)
  local mask = x.encoder_hidden_states_mask
  local seen = mask and seen_of(mask, n)
  for i = 0, o.num_layers - 1 do
    image, text = dpc.scope("transformer_blocks." .. i, function()
      return mmdit.block(image, text, temb, o, turn, seen, past,
                         i == o.num_layers - 1)
    end)
  end
  local now = past and temb:slice{ dim = 0, at = 0, size = hidden:dim(0) }
      or temb
  local mod = layers.apart(linear("norm_out.linear", nn.silu(now),
                                  2 * o.width), 2)         -- [b, 2, k]
  image = layers.norm(image) * (rows(part(mod, 0), image) + 1)
      + rows(part(mod, 1), image)                          -- scale comes first
  return linear("proj_out", image, o.patch_size ^ 2 // 1 * o.out_channels)
end

---- latents in, velocities out ----

-- { 1, rows, columns } of latents z [b, c, h, w], in patches of p.
local function grid(z, p)
  return { 1, z:dim(2) // p, z:dim(3) // p }
end

-- The velocity of the noisy latents z [b, c, h, w] at t [b], as tokens [b, n,
-- p p c], beside x.references, latents too, x.words [b, m, k] and x.mask.
function mmdit.velocity(o, z, t, x)
  local p = o.patch_size
  local c = o.in_channels // (p * p)
  kinds.expect("qwen_image", "latents", z, { false, c, false, false },
               "in_channels by patch_size^2")
  local hidden, shapes = flow.packed(z, p), { grid(z, p) }
  local n = hidden:dim(1)
  for _, r in ipairs(x.references or {}) do
    hidden = hidden:concat(flow.packed(r, p), { dim = 1 })
    shapes[#shapes + 1] = grid(r, p)
  end
  local out = mmdit.forward(o, {
    hidden_states = hidden, encoder_hidden_states = x.words,
    encoder_hidden_states_mask = x.mask, timestep = t, img_shapes = shapes,
  })
  return out:slice{ dim = 1, at = 0, size = n }
end

-- Flow matching of latents x0 [b, c, h, w] at s [b], told as t [b], samples
-- weighted [b], nil: alike -> f32 [].
function mmdit.matching(o, x0, noise, s, t, weight, x)
  local z, target = flow.noised(x0, noise, s)
  return flow.loss(mmdit.velocity(o, z, t, x),
                   flow.packed(target, o.patch_size), weight)
end

return mmdit
