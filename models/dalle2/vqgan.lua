-- vqgan.lua -- VQGanVAE as a unit, for diffusion in its codes.
--
-- `--config vqgan_config.json` holds its keywords; `parts` are for cases of
-- docs/parity.md.  With VGG and GAN a step trains the autoencoder, then the
-- discriminator on the same pictures; VGG's weights come with
-- --init-from vgg=PATH.

local nn = require "nn"
local layers = require "dalle2.full.layers"
local train = require "dalle2.full.train"
local vqgan = require "dalle2.full.vqgan"

local parts = require("dalle2.parts").parts
if not dpc.config then
  return { name = "vqgan", parts = parts }
end

local v = vqgan.new(dpc.config)
local batch = dpc.option("batch", 16, "pictures a step", 1)

local function read()
  local n = v.o.image_size
  local x = dpc.input("image", { batch, n, n, v.o.channels }, "u8")
  return (x:cast("f32") / 255):move("bhwc->bchw")          -- [b, c, n, n]
end

-- Parameters of the discriminator, and the others.
local function apart()
  local judge, own = {}, {}
  for _, p in ipairs(dpc.params()) do
    local list = p:name():match("^discr%.") and judge or own
    list[#list + 1] = p
  end
  return judge, own
end

local function train_entry()
  return layers.training(function()
    local x, o = read(), train.vqgan{}
    local loss, y = v:loss(x)
    local cost = v.o.use_vgg_and_gan and v:discriminator_loss(x, y)
    local judge, own = apart()
    local out = train.step(loss, o, nil, own)
    train.follow(o, v.vq.moves)
    out.loss = loss
    if cost then
      local other = train.step(cost, o, nil, judge)
      out.discr_loss, out.discr_grad_norm = cost, other.grad_norm
    end
    return out
  end)
end

local function eval()
  local x = read()
  local y = nn.averaged(function() return (v:decode(v:encode(x))) end)
  return { loss = nn.mean((y - x):abs()), pictures = nn.clamp(y, 0, 1) }
end

return { name = "vqgan", entries = { train = train_entry, eval = eval },
         parts = parts }
