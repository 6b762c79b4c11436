-- prior.lua -- trains the prior: from captions to CLIP image embeddings.
--
-- With `--config prior_config.json` it is the published one, of any size:
-- full/unit_prior.lua.  Without, it is the demo's, which follows.
-- CLIP's weights are frozen: start with `--init-from clip=RUN/clip:ema:partial`.
-- The diffusion is over embeddings scaled to variance one, predicting x0
-- (Ramesh et al. 2022, 2.2).

if dpc.config then
  return require("dalle2.full.unit_prior")(dpc.config)
end

local nn = require "nn"
local optim = require "optim"
local diffusion = require "diffusion"
local data = require "data"
local net = require "net"

local batch = dpc.option("batch", net.tiny and 8 or 64, "captions a step", 1)

-- Loss f32 [] and mean cosine of predicted and true embeddings f32 [].
local function measure(d, how)
  local image, text, words = nn.frozen(function()
    local t, w = net.clip_text(d.tokens)
    return net.scaled(net.clip_image(d.picture)), t, w
  end)                                 -- [b, embed] twice, [b, 8, text]
  return how(function()
    local process = diffusion.new{}
    local loss, x0 = process:loss(image, function(x, t)
      return net.prior(x, t, text, words)
    end)
    local cosine = (nn.unit(x0) * nn.unit(image)):move("bk->b") -- [b]
    return loss, nn.mean(cosine)
  end)
end

local function train()
  local loss, cosine = measure(data.batch(batch), function(fn)
    return fn()
  end)
  local out = optim.step(loss, { lr = 1e-3, warmup = 40, steps = 700,
                                 ema = 0.99 })
  out.loss, out.cosine = loss, cosine
  return out
end

local function eval()
  local loss, cosine = measure(data.batch(batch, true), nn.averaged)
  return { loss = loss, cosine = cosine }
end

return {
  name = "prior",
  entries = { train = train, eval = eval },
  meta = data.meta(),
  parts = require("dalle2.parts").parts,
}
