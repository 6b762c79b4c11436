-- unet.lua -- Unet: the network that a decoder's stage denoises with.
--
-- Stage i of S works at 1 / 2^i of the picture's sides:
--   down   block, n x (block, kept), attention, kept, halving
--   mid    block, attention, block, which alone look at the text
--   up     block on one that was kept, n x the same, attention, doubling
-- At the end what the first convolution gave is appended, one block, one
-- convolution, which starts as zero: so do all gradients but its own.

local nn = require "nn"
local kinds = require "kinds"
local layers = require "dalle2.full.layers"
local options = require "dalle2.full.options"
local attention = require "dalle2.full.attention"
local blocks = require "dalle2.full.unet_blocks"
local cond = require "dalle2.full.unet_cond"

-- attend_at_middle and out_dim are taken, and change nothing, as in the
-- original; checkpoint_during_training is the compiler's matter.
local declared = {
  dim = options.size, image_embed_dim = options.maybe("size"),
  text_embed_dim = options.maybe("size"),
  cond_dim = options.maybe("size"), num_image_tokens = 4,
  num_time_tokens = 2, out_dim = options.any, dim_mults = { 1, 2, 4, 8 },
  channels = 3, channels_out = options.maybe("size"),
  self_attn = options.each(false), attn_dim_head = 32, attn_heads = 16,
  lowres_cond = false, lowres_noise_cond = false, self_cond = false,
  sparse_attn = options.any, cosine_sim_cross_attn = false,
  cosine_sim_self_attn = false, attend_at_middle = true,
  cond_on_text_encodings = options.maybe("boolean"), max_text_len = 256,
  cond_on_image_embeds = false, add_image_embeds_to_time = true,
  init_dim = options.maybe("size"), init_conv_kernel_size = 7,
  resnet_groups = options.each(8), resnet_weight_standardization = false,
  num_resnet_blocks = options.each(2), init_cross_embed = true,
  init_cross_embed_kernel_sizes = { 3, 7, 15 },
  cross_embed_downsample = false,
  cross_embed_downsample_kernel_sizes = { 2, 4 }, memory_efficient = false,
  scale_skip_connection = false, pixel_shuffle_upsample = true,
  final_conv_kernel_size = 1, combine_upsample_fmaps = false,
  checkpoint_during_training = false,
}

local unet = {}
unet.__index = unet

local function check(o)
  if o.init_dim and o.init_dim ~= o.dim then
    options.fail(o, "init_dim", "init_dim %d is not dim, %d: the last block "
                 .. "appends the one to the other", o.init_dim, o.dim)
  end
  if o.dim % 2 ~= 0 or o.dim < 4 then
    options.fail(o, "dim", "dim is %d; for sines of the time an even number "
                 .. "from 4 is wanted", o.dim)
  end
  if o.dim_mults[1] ~= 1 and not o.memory_efficient then
    options.fail(o, "dim_mults", "dim_mults begins with %d; without "
                 .. "memory_efficient the first is 1", o.dim_mults[1])
  end
  if not o.cond_on_image_embeds then
    return
  elseif not o.image_embed_dim then
    options.fail(o, "image_embed_dim", "image_embed_dim is missing, and "
                 .. "cond_on_image_embeds is set")
  elseif o.image_embed_dim == o.cond_dim then
    options.fail(o, o.given.cond_dim and "cond_dim" or "image_embed_dim",
                 "image_embed_dim and cond_dim are both %d: the original then "
                 .. "makes no tokens of the embedding, and mixes the samples "
                 .. "of a batch; choose another cond_dim", o.cond_dim)
  end
end

-- Every norm's channels are a whole number of groups.
local function groups_check(o, stage)
  for i, s in ipairs(stage) do
    for _, c in ipairs{ s.width, s.to } do
      if c % s.groups ~= 0 then
        options.fail(o, o.given.resnet_groups and "resnet_groups" or "dim",
                     "stage %d has %d channels, which %d groups do not "
                     .. "divide (resnet_groups)", i, c, s.groups)
      end
    end
  end
  if o.combine_upsample_fmaps and o.dim % 8 ~= 0 then
    options.fail(o, "combine_upsample_fmaps", "combine_upsample_fmaps: its "
                 .. "norms have 8 groups, and dim is %d", o.dim)
  end
end

-- An empty list is no, any other yes, as Python has it.
local function truth(x)
  return type(x) == "table" and not kinds.empty(x) or x == true
end

-- given: the constructor's keywords.  changed: those that a decoder insists
-- on, over them.  scope: of its weights; "": the open one.
local function new(given, changed, scope)
  local o = options.take(given, "Unet", declared)
  for key, value in pairs(changed or {}) do
    o[key] = value
  end
  o.cond_dim, o.channels_out = o.cond_dim or o.dim, o.channels_out or o.channels
  check(o)
  if o.cond_on_text_encodings and not o.text_embed_dim then
    options.fail(o, "text_embed_dim", "text_embed_dim is missing, and "
                 .. "cond_on_text_encodings is set")
  end
  local n, stage = #o.dim_mults, {}
  local groups = options.list(o, "resnet_groups", n)
  local deep = options.list(o, "num_resnet_blocks", n)
  local attends = options.list(o, "self_attn", n)
  local before = o.dim
  for i, mult in ipairs(o.dim_mults) do
    local after = o.dim * mult
    stage[i] = {
      from = before, to = after, groups = groups[i], blocks = deep[i],
      width = o.memory_efficient and after or before, last = i == n,
      attention = attends[i] and "full" or truth(o.sparse_attn) and "linear" }
    before = after
  end
  groups_check(o, stage)
  return setmetatable({ o = o, stage = stage, self_cond = o.self_cond,
                        scope = scope or "" }, unet)
end

-- How often the sides of a picture are halved.
function unet:halvings()
  return self.o.memory_efficient and #self.stage or #self.stage - 1
end

---- parts of the forward pass ----

-- What a block is told: t, the tokens it may look at, and its groups.
local function block_options(o, t, groups, context)
  return { time = t, context = context, groups = groups,
           standardized = o.resnet_weight_standardization,
           cosine = o.cosine_sim_cross_attn }
end

local function attend(o, name, x, kind)
  if kind == "linear" then
    return attention.linear(name, x, o.attn_heads, o.attn_dim_head)
  elseif not kind then
    return x
  end
  return attention.pixels(name, x, {
    heads = o.attn_heads, dim_head = o.attn_dim_head,
    cosine = o.cosine_sim_self_attn })
end

function unet:down(x, t, c, kept)
  local o = self.o
  local cross = o.cross_embed_downsample
      and o.cross_embed_downsample_kernel_sizes
  for i, s in ipairs(self.stage) do
    x = dpc.scope("downs." .. i - 1, function()
      local x = x
      if o.memory_efficient then
        x = blocks.down("0", x, s.to, cross)
      end
      x = blocks.resnet("1", x, s.width, block_options(o, t, s.groups))
      local deep = block_options(o, t, s.groups, i > 1 and c or nil)
      for j = 0, s.blocks - 1 do
        x = blocks.resnet("2." .. j, x, s.width, deep)
        kept[#kept + 1] = x
      end
      x = attend(o, "3", x, s.attention)
      kept[#kept + 1] = x
      if o.memory_efficient or s.last then
        return layers.conv("4", x, s.to, 1)
      end
      return blocks.down("4", x, s.to, cross)
    end)
  end
  return x
end

function unet:middle(x, t, mid_c)
  local o, s = self.o, self.stage[#self.stage]
  local told = block_options(o, t, s.groups, mid_c)
  x = blocks.resnet("mid_block1", x, s.to, told)
  x = attend(o, "mid_attn", x, "full")
  return blocks.resnet("mid_block2", x, s.to, told)
end

function unet:up(x, t, c, kept, maps)
  local o = self.o
  local scale = o.scale_skip_connection and 2 ^ -0.5 or 1
  local function joined(y)
    local skip = table.remove(kept)
    return y:concat(scale == 1 and skip or skip * scale, { dim = 1 })
  end
  for i = #self.stage, 1, -1 do
    local s = self.stage[i]
    x = dpc.scope("ups." .. #self.stage - i, function()
      local told = block_options(o, t, s.groups, i > 1 and c or nil)
      local x = blocks.resnet("0", joined(x), s.to, told)
      for j = 0, s.blocks - 1 do
        x = blocks.resnet("1." .. j, joined(x), s.to, told)
      end
      x = attend(o, "2", x, s.attention)
      maps[#maps + 1] = x
      if i == 1 and not o.memory_efficient then
        return x
      end
      return blocks.up("3", x, s.from, o.pixel_shuffle_upsample)
    end)
  end
  return x
end

---- forward ----

local function appended(x, y)
  return y and x:concat(y, { dim = 1 }) or x
end

-- x with what it is conditioned on picture by picture, after one convolution.
function unet:entrance(x, c)
  local o = self.o
  if o.self_cond then
    x = appended(x, c.self_cond or dpc.const(0, x:dims()))
  end
  x = appended(x, c.lowres_cond_img)
  if o.init_cross_embed then
    return blocks.cross_embed("init_conv", x, o.dim,
                              o.init_cross_embed_kernel_sizes, 1)
  end
  local size = o.init_conv_kernel_size
  return layers.conv("init_conv", x, o.dim, size, { pad = size // 2 })
end

-- x [b, channels, h, w], time [b] -> [b, channels_out, h, w].
--   c.image_embed [b, e]   c.text_encodings [b, n, e']   c.self_cond like x
--   c.lowres_cond_img like x, c.lowres_noise_level [b]
--   c.image_drop, c.text_drop  share of samples whose condition is dropped
function unet:forward(x, time, c)
  return layers.within(self.scope, function()
    return self:predict(x, time, c)
  end)
end

-- Inputs are as wide as the options say, and there where they are read.
function unet:inputs_check(x, time, c)
  local o = self.o
  local b, h, w = x:dim(0), x:dim(2), x:dim(3)
  local picture, part = { b, o.channels, h, w }, 2 ^ self:halvings() | 0
  kinds.expect("Unet", "x", x, picture, "channels")
  kinds.expect("Unet", "self_cond", c.self_cond, picture, "channels")
  kinds.expect("Unet", "lowres_cond_img", c.lowres_cond_img, picture,
                "channels")
  kinds.expect("Unet", "t", time, { b })
  kinds.expect("Unet", "lowres_noise_level", c.lowres_noise_level, { b })
  if h % part ~= 0 or w % part ~= 0 then
    dpc.fail(("Unet: x is %d x %d, and its sides are halved %d times: "
              .. "multiples of %d are wanted"):format(h, w, self:halvings(),
                                                      part))
  end
  if o.cond_on_image_embeds then
    if not c.image_embed then
      dpc.fail("Unet: cond_on_image_embeds is set, but there is no "
               .. "image_embed")
    end
    kinds.expect("Unet", "image_embed", c.image_embed,
                  { b, o.image_embed_dim }, "image_embed_dim")
  end
  if o.cond_on_text_encodings then
    kinds.expect("Unet", "text_encodings", c.text_encodings,
                  { b, false, o.text_embed_dim }, "text_embed_dim")
  end
end

function unet:predict(x, time, c)
  local o, kept, maps = self.o, {}, {}
  if #x:dims() ~= 4 then
    kinds.expect("Unet", "x", x, { false, o.channels, false, false })
  end
  self:inputs_check(x, time, c)
  if o.lowres_cond and not c.lowres_cond_img then
    dpc.fail("Unet: lowres_cond is set, but there is no lowres_cond_img")
  elseif not o.lowres_noise_cond and c.lowres_noise_level then
    dpc.fail("Unet: a lowres_noise_level, but lowres_noise_cond is not set")
  end
  x = self:entrance(x, c)                                  -- [b, dim, h, w]
  local first = x
  local t, tokens, mid_tokens = cond.make(o, time, c)
  local told = block_options(o, t, self.stage[1].groups)
  if o.memory_efficient then
    x = blocks.resnet("init_resnet_block", x, o.dim, told)
  end
  x = self:down(x, t, tokens, kept)
  x = self:middle(x, t, mid_tokens)
  x = self:up(x, t, tokens, kept, maps)
  if o.combine_upsample_fmaps then
    x = blocks.combine("upsample_combiner", x, maps, o.dim)
  end
  x = blocks.resnet("final_resnet_block", appended(x, first), o.dim, told)
  local size = o.final_conv_kernel_size
  return layers.conv("to_out", appended(x, c.lowres_cond_img),
                     o.channels_out, size,
                     { pad = size // 2, init = nn.zeros })
end

-- With classifier-free guidance: scale 1 is none.
function unet:guided(x, time, c, scale)
  local with = self:forward(x, time, c)
  if not scale or scale == 1 then
    return with
  end
  local none = setmetatable({ image_drop = 1, text_drop = 1 }, { __index = c })
  local without = self:forward(x, time, none)
  return without + (with - without) * scale
end

return { new = new, declared = declared }
