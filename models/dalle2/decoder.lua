-- decoder.lua -- trains the decoder: from CLIP image embeddings to pictures.
--
-- With `--config decoder_config.json` it is the published one, of any size:
-- full/unit_decoder.lua.  Without, it is the demo's, which follows.
-- CLIP's weights are frozen: start with `--init-from clip=RUN/clip:ema:partial`.
-- The embedding is dropped now and then, for classifier-free guidance, and
-- jittered, because the prior's will not be exact either.

if dpc.config then
  return require("dalle2.full.unit_decoder")(dpc.config)
end

local nn = require "nn"
local optim = require "optim"
local data = require "data"
local net = require "net"

local batch = dpc.option("batch", net.tiny and 4 or 32, "pictures a step", 1)

-- Scaled CLIP embeddings of the pictures, f32 [b, embed].
local function embedding(d)
  return nn.frozen(function()
    return net.scaled(net.clip_image(d.picture))
  end)
end

-- f32 []; drop [b]: 1 where the network is not told the embedding.
local function loss_of(d, e, drop)
  return (net.drawing:loss(d.picture, function(x, t)
    return net.decoder(x, t, e, drop)
  end))
end

local function train()
  local d = data.batch(batch)
  local p = dpc.scalar("drop", 0.1, "share of embeddings dropped")
  local jitter = dpc.scalar("jitter", 0.1, "noise on embeddings")
  local e = embedding(d)                                   -- [b, embed]
  e = e + dpc.random("normal", e:dims()) * jitter
  local drop = dpc.random("uniform", { batch }):lt(p)      -- [b]
  local loss = loss_of(d, e, drop)
  local out = optim.step(loss, { lr = 2.5e-3, warmup = 60, steps = 1100,
                                 ema = 0.99 })
  out.loss = loss
  return out
end

local function eval()
  local d = data.batch(batch, true)
  local e = embedding(d)                                   -- [b, embed]
  return nn.averaged(function()
    return { loss = loss_of(d, e, dpc.const(0, { batch })) }
  end)
end

---- sample: photographs drawn again from their embeddings alone ----

local function canvas()                                    -- -1 .. 1
  return dpc.state("sample.x", { batch, 3, data.side, data.side })
end

local function hint()
  return dpc.state("sample.e", { batch, net.size.embed })
end

local function start()
  local d = data.batch(batch, true)
  dpc.set(hint(), embedding(d))
  dpc.set(canvas(), dpc.random("normal", canvas():dims()))
  return { tokens = d.tokens }         -- what is drawn
end

local function denoise()
  local n = dpc.scalar("decode_steps", 11, "steps of the decoder's sampler")
  local weight = dpc.scalar("guidance", 2, "1: none")
  local step = dpc.scalar("step", 0, "steps done")         -- []
  local x, e = canvas(), hint()
  dpc.set(x, nn.averaged(function()
    return net.draw(x, e, step, n, weight)
  end))
end

local function finish()
  return { pictures = canvas() * 0.5 + 0.5 }               -- 0 .. 1
end

return {
  name = "decoder",
  entries = { train = train, eval = eval, start = start, denoise = denoise,
              finish = finish },
  runs = { sample = { "start", { "denoise", times = "decode_steps" },
                      "finish" } },
  meta = data.meta(),
  parts = require("dalle2.parts").parts,
}
