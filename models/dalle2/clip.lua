-- clip.lua -- trains CLIP: pictures and captions into one space.
--
-- With `--config clip_config.json` it is the published one, of any make:
-- full/unit_clip.lua.  Without, it is the demo's, which follows.
-- The loss is contrastive over the whole batch (Radford et al. 2021, figure
-- 3).  There are only 320 captions, so some stand twice in a batch: all pairs
-- of a picture with its own caption count as right, in equal parts.

if dpc.config then
  return require("dalle2.full.unit_clip")(dpc.config)
end

local nn = require "nn"
local optim = require "optim"
local data = require "data"
local net = require "net"

local batch = dpc.option("batch", net.tiny and 8 or 128, "pictures a step", 1)

-- [] > 0: what cosines are multiplied by; learned, from 14, at most 100.
local function sharpness()
  return dpc.scope("clip", function()
    return nn.weight("sharpness", {}, nn.constant(math.log(14)))
        :minimum(math.log(100)):exp()
  end)
end

-- image, text [b, embed]; number [b] of each caption -> loss f32 [].
local function contrast(image, text, number)
  local b = image:dim(0)
  local cosine = image:dot(text, "ik,jk->ij")              -- [b, b]
  local logit = cosine * sharpness()
  local same = number:move("i->ij", { j = b })
      :eq(number:move("j->ij", { i = b }))                 -- [b, b]
  local count = same:move("ij->i")                         -- [b]
  local target = same / nn.like(count, "i->ij", same)
  return (nn.cross_entropy(logit, target)
          + nn.cross_entropy(logit:move("ij->ji"), target)) * 0.5
end

local function number_of(d)
  return data.caption_number(d.colour, d.background, d.garment)
end

local function train()
  local d = data.batch(batch)
  local image = net.clip_image(d.picture)                  -- [b, embed]
  local text = net.clip_text(d.tokens)                     -- [b, embed]
  local loss = contrast(image, text, number_of(d))
  local out = optim.step(loss, { lr = 2e-3, warmup = 40, steps = 640,
                                 ema = 0.99 })
  out.loss = loss
  return out
end

-- Zero-shot: of the ten captions with the picture's own colour and background
-- the nearest should name its garment; and of all 320 the nearest be its own.
local function eval()
  local d = data.batch(batch, true)
  return nn.averaged(function()
    local image = net.clip_image(d.picture)                -- [b, embed]
    local text = net.clip_text(d.tokens)                   -- [b, embed]
    local every = net.clip_text(data.all_captions())       -- [320, embed]
    local cosine = image:dot(every, "bk,nk->bn")           -- [b, 320]
    local ng = #data.garments
    local rest = data.captions // ng
    local look = nn.one_hot(d.colour * #data.backgrounds + d.background,
                            rest)                          -- [b, 32]
    local ten = cosine:move("b (g r) -> b g r", { g = ng })
        :dot(look, "bgr,br->bg")                           -- [b, 10]
    return {
      loss = contrast(image, text, number_of(d)),
      zero_shot = nn.accuracy(ten, nn.one_hot(d.garment, ng)),
      caption = nn.accuracy(cosine, nn.one_hot(number_of(d), data.captions)),
    }
  end)
end

return {
  name = "clip",
  entries = { train = train, eval = eval },
  meta = data.meta(),
  parts = require("dalle2.parts").parts,
}
