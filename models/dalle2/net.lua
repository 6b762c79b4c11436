-- net.lua -- the four networks, at the size that the option "size" names.
--
-- The plan is DALL-E 2's (Ramesh et al. 2022, "Hierarchical text-conditional
-- image generation with CLIP latents"): a caption becomes a CLIP text
-- embedding, the prior turns it into a CLIP image embedding, the decoder
-- draws a picture from that.  Pictures are f32 [b, 3, 28, 28] in -1 .. 1.
--
-- What a training step costs for one picture at size "fashion", in flops of
-- contractions forward and backward (`dpc check`), and the default runs:
--   clip     41 M x 102,000      prior   58 M x 51,000 (14 M are frozen clip)
--   decoder 610 M x  48,000      judge   37 M x 205,000
-- 37 Tflop for the three, and 8 for the judge.

local nn = require "nn"
local diffusion = require "diffusion"
local data = require "data"

local sizes = {
  fashion = {
    embed = 64, text = 64, text_layers = 2, text_heads = 4,
    eye = { 32, 64 }, groups = 8, prior = 128, prior_layers = 3,
    prior_heads = 4, unet = { 64, 128 }, cond = 256, unet_heads = 4,
    features = 64,
  },
  tiny = {
    embed = 8, text = 8, text_layers = 1, text_heads = 2, eye = { 4, 8 },
    groups = 2, prior = 8, prior_layers = 1, prior_heads = 2,
    unet = { 4, 8 }, cond = 8, unet_heads = 2, features = 8,
  },
}

local option = dpc.option("size", "fashion",
                          "of the networks: fashion, or tiny for tests")
local size = sizes[option]
    or dpc.fail(("size \"%s\": there are fashion, tiny"):format(option))

local net = { size = size, tiny = option == "tiny" }

-- What every picture-reader begins with: [b, 3, 28, 28] -> [b, 3136] as
-- [b, c, 7, 7], two strides of space-to-depth instead of pooling.
local function eye(picture)
  local c1, c2, g = size.eye[1], size.eye[2], size.groups
  local function block(name, x, c)                         -- same size
    return nn.silu(nn.group_norm(name .. ".norm",
                                 nn.conv2d(name, x, c, 3), g))
  end
  local x = nn.space_to_depth(picture, 2)                  -- [b, 12, 14, 14]
  x = nn.space_to_depth(block("conv1", x, c1), 2)          -- [b, 4 c1, 7, 7]
  x = block("conv2", x, c2)                                -- [b, c2, 7, 7]
  return x + block("conv3", x, c2)
end

---- clip (Radford et al. 2021) ----

-- Pictures -> unit vectors [b, embed].
function net.clip_image(picture)
  return dpc.scope("clip.image", function()
    return nn.unit(nn.linear("embed", eye(picture), size.embed, { over = 3 }))
  end)
end

-- Captions i32 [b, 8] -> a unit vector [b, embed], and one vector a word
-- [b, 8, text].
function net.clip_text(tokens)
  local width = size.text
  return dpc.scope("clip.text", function()
    local x = nn.embedding("words", tokens, data.words, width,
                           { init = nn.normal(0.5) })      -- [b, 8, text]
    x = x + nn.weight("place", { data.length, width }, nn.normal(0.1))
    for i = 1, size.text_layers do
      x = nn.transformer("block" .. i, x, size.text_heads)
    end
    x = nn.layer_norm("norm", x)
    local e = nn.linear("embed", nn.mean(x, "bnk->bk"), size.embed)
    return nn.unit(e), x
  end)
end

-- Image embeddings as prior and decoder want them: elements of variance one.
function net.scaled(e)
  return e * size.embed ^ 0.5
end

---- prior (Ramesh et al. 2022, 2.2) ----

-- x0 of the scaled image embedding [b, embed] from x_t [b, embed] at t [b]:
-- a causal transformer over words, text embedding, time, x_t and a query,
-- whose place gives the answer.  What of x_t itself belongs to x0 depends on
-- t alone, if x0 is near Gaussian; so that share need not go through layers
-- that would first have to learn to copy, and samples of one caption differ.
function net.prior(x, t, text, words)
  local width = size.prior
  return dpc.scope("prior", function()
    local query = nn.weight("query", { width }, nn.normal(0.02))
    local time = nn.time_embedding("time", t, size.cond, width) -- [b, prior]
    local parts = {
      nn.linear("words", words, width),                    -- [b, 8, prior]
      nn.token(nn.linear("text", net.scaled(text), width)), -- [b, 1, prior]
      nn.token(time),
      nn.token(nn.linear("noised", x, width)),
      query:move("k->bnk", { b = x:dim(0), n = 1 }),
    }
    local y = parts[1]
    for i = 2, #parts do
      y = y:concat(parts[i], { dim = 1 })
    end                                                    -- [b, 12, prior]
    y = y + nn.weight("place", { y:dim(1), width }, nn.normal(0.02))
    for i = 1, size.prior_layers do
      y = nn.transformer("block" .. i, y, size.prior_heads, { causal = true })
    end
    local last = nn.token_at(y, y:dim(1) - 1)              -- [b, prior]
    return nn.linear("out", nn.layer_norm("norm", last), size.embed)
        + x * nn.linear("share", nn.silu(time), size.embed)
  end)
end

---- decoder (Ramesh et al. 2022, 2.1; the U-Net of Dhariwal, Nichol 2021) ----

-- [b, cond]: time t [b] and image embedding e [b, embed], which is replaced
-- by a learned one where drop [b] is 1.
local function condition(t, e, drop)
  local null = nn.weight("null", { size.embed }, nn.normal(0.5))
  e = nn.rows(drop, e):where(nn.like(null, "k->bk", e), e) -- [b, embed]
  local h = nn.time_embedding("time", t, 64, size.cond)    -- [b, cond]
      + nn.linear("image", e, size.cond)
  return nn.silu(h)
end

-- x0 from x [b, 3, 28, 28] at t [b]; works at 14 x 14 and 7 x 7.
function net.decoder(x, t, e, drop)
  local c1, c2 = size.unet[1], size.unet[2]
  return dpc.scope("decoder", function()
    local o = { cond = condition(t, e, drop), groups = size.groups }
    local y = nn.space_to_depth(x, 2)                      -- [b, 12, 14, 14]
    y = nn.conv2d("in", y, c1, 3)
    local skip1 = nn.resnet("down1", y, c1, o)             -- [b, c1, 14, 14]
    y = nn.conv2d("shrink", nn.space_to_depth(skip1, 2), c2, 1)
    local skip2 = nn.resnet("down2", y, c2, o)             -- [b, c2, 7, 7]
    y = nn.resnet("mid", skip2, c2, o)
    y = nn.pixel_attention("look", y, size.unet_heads, o)
    y = nn.resnet("up2", y:concat(skip2, { dim = 1 }), c2, o)
    y = nn.depth_to_space(nn.conv2d("grow", y, 4 * c1, 1), 2)
    y = nn.resnet("up1", y:concat(skip1, { dim = 1 }), c1, o)
    y = nn.silu(nn.group_norm("norm", y, size.groups))     -- [b, c1, 14, 14]
    y = nn.conv2d("out", y, 12, 3, { init = nn.zeros })
    return nn.depth_to_space(y, 2)                         -- [b, 3, 28, 28]
  end)
end

net.drawing = diffusion.new{ clip = 1 }

-- One step of drawing x [b, 3, 28, 28] towards the scaled image embedding e
-- [b, embed]: step number `step` of `n`, with guidance `weight`, all f32 [].
function net.draw(x, e, step, n, weight)
  local t, to = diffusion.times(step, n)                   -- []
  local told = dpc.const(0, { x:dim(0) })                  -- [b]
  local untold = dpc.const(1, { x:dim(0) })                -- [b]
  return net.drawing:step(x, t, to, function(y, at)
    return diffusion.guided(net.decoder(y, at, e, told),
                            net.decoder(y, at, e, untold), weight)
  end)
end

---- judge ----

-- Pictures -> logits of the garments [b, 10], and features [b, features].
-- These have length features^0.5: a distance between sets of them does not
-- grow with how sure of itself a judge was trained to be.
function net.judge(picture)
  return dpc.scope("judge", function()
    local f = nn.linear("features", eye(picture), size.features, { over = 3 })
    f = nn.unit(f) * size.features ^ 0.5                   -- [b, features]
    return nn.linear("garment", nn.silu(f), #data.garments), f
  end)
end

return net
