-- unclip.lua -- draws pictures from captions: CLIP's text, prior, decoder.
--
-- The sampler is a unit of its own that reads three checkpoints:
--     --init-from clip=RUN/clip:ema:extra --init-from prior=RUN/prior:ema
--     --init-from decoder=RUN/decoder:ema
-- Between its entries the half-made embeddings and pictures are states.

local nn = require "nn"
local diffusion = require "diffusion"
local data = require "data"
local net = require "net"

local batch = dpc.option("batch", net.tiny and 4 or 80, "pictures at a time", 1)
local tries = dpc.option("tries", 2, "embeddings to choose from", 1)
local thought = diffusion.new{}

local D, W = net.size.embed, net.size.text

local function text() return dpc.state("text", { batch, D }) end
local function words()
  return dpc.state("words", { batch, data.length, W })
end
local function ideas()                 -- those of one caption side by side
  return dpc.state("ideas", { batch * tries, D })
end
local function canvas()                                    -- -1 .. 1
  return dpc.state("canvas", { batch, 3, data.side, data.side })
end

local function step()
  return dpc.scalar("step", 0, "steps done")               -- []
end

-- Captions -> CLIP's text; noise to begin with.
local function embed()
  local tokens = dpc.input("tokens", { batch, data.length }, "i32")
  local t, w = nn.frozen(function() return net.clip_text(tokens) end)
  dpc.set(text(), t)
  dpc.set(words(), w)
  dpc.set(ideas(), dpc.random("normal", { batch * tries, D }))
  dpc.set(canvas(), dpc.random("normal", canvas():dims()))
end

-- One step from noise to an image embedding; eta 1 keeps it random on the
-- way (DDPM), so that seeds differ.
local function prior_step()
  local n = dpc.scalar("prior_steps", 16, "steps of the prior's sampler")
  local eta = dpc.scalar("eta", 1, "noise in the prior's steps: 0 to 1")
  local t, to = diffusion.times(step(), n)                 -- []
  local many = { k = tries }
  local x = ideas()                                        -- [batch tries, D]
  local e = text():move("nd->(nk)d", many)
  local w = words():move("nld->(nk)ld", many)
  dpc.set(x, nn.frozen(function()
    return thought:step(x, t, to, function(y, at)
      return net.prior(y, at, e, w)
    end, eta)
  end))
end

-- Of each caption's embeddings the one nearest to its text (Ramesh et al.
-- 2022, 2.2), as long as CLIP's are: [batch, D].
local function chosen()
  local x = nn.unit(ideas()):move("(nk)d->nkd", { k = tries })
  local near = x:dot(text(), "nkd,nd->nk")
  local best = near:eq(nn.like(near:max("nk->n"), "n->nk", near)) -- [batch, k]
  return net.scaled(nn.unit(x:dot(best, "nkd,nk->nd")))
end

-- What each row is drawn from; `shuffle` takes the embedding of the row so
-- much further down, which must spoil every picture.
local function hint()
  local far = dpc.scalar("shuffle", 0,
                         "draw from the embedding so many captions further")
  local row = dpc.iota({ batch }, 0) + far                 -- [batch]
  row = row - ((row + 0.5) * (1 / batch)):floor() * batch
  return chosen():take(row:cast("i32"))                    -- [batch, D]
end

local function decode_step()
  local n = dpc.scalar("decode_steps", 11, "steps of the decoder's sampler")
  local weight = dpc.scalar("guidance", 2, "1: none")
  local x, e = canvas(), hint()
  dpc.set(x, nn.frozen(function()
    return net.draw(x, e, step(), n, weight)
  end))
end

local function finish()
  return { pictures = (canvas() * 0.5 + 0.5):maximum(0):minimum(1) }
end

return {
  name = "unclip",
  entries = { embed = embed, prior_step = prior_step,
              decode_step = decode_step, finish = finish },
  runs = { sample = { "embed", { "prior_step", times = "prior_steps" },
                      { "decode_step", times = "decode_steps" }, "finish" } },
  meta = data.meta(),
}
