-- vae.lua -- Qwen-Image's autoencoder: pictures to latents and back.
--
-- `--config config.json` of a released one gives the options; its weights are
-- frozen.  Latents are normalised by the constants of each channel, as the
-- transformer wants them.

local nn = require "nn"
local autoencoder = require "autoencoder"

local batch = dpc.option("batch", 1, "pictures", 1)
local height = dpc.option("height", 1024, "rows, a multiple of 16")
local width = dpc.option("width", 1024, "columns, a multiple of 16")
local draw = dpc.option("draw", false, "latents are drawn, not the means")

local options = autoencoder.options(dpc.config)

-- The input "image" u8 [b, h, w, 3] -> [b, 3, h, w] in -1..1.
local function picture()
  local x = dpc.input("image", { batch, height, width, 3 }, "u8")
  return x:cast("f32"):move("bhwc->bchw") * (2 / 255) - 1
end

local function latents(x)
  local mean, log_variance = autoencoder.posterior(options, x)
  local z = draw and autoencoder.drawn(mean, log_variance) or mean
  return autoencoder.normalised(options, z)
end

local function pictures(z)
  return autoencoder.decoded(options, autoencoder.denormalised(options, z))
end

local function encode()
  return { latents = nn.frozen(function() return latents(picture()) end) }
end

local function decode()
  local z = dpc.input("latents", { batch, options.z_dim, height // 8,
                                   width // 8 })
  return { pictures = nn.frozen(function() return pictures(z) end) * 0.5
                      + 0.5 }
end

-- How well pictures survive.
local function eval()
  local x = picture()
  return { mse = nn.mse(nn.frozen(function()
    return pictures(latents(x))
  end), x) }
end

---- parts: what parity cases ask for ----

-- Pictures x [b, 3, h, w] in -1..1 -> latents z, and the pictures again.
local function part(o, x)
  o = autoencoder.options(o)
  local mean = autoencoder.posterior(o, x.x)
  return { z = autoencoder.normalised(o, mean),
           decode = autoencoder.decoded(o, mean) }
end

return {
  name = "vae",
  entries = { encode = encode, decode = decode, eval = eval },
  runs = { encode = { "encode" }, decode = { "decode" } },
  parts = { vae = part },
}
