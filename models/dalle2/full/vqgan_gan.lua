-- vqgan_gan.lua -- what VQGanVAE is judged by: a patch discriminator, and the
-- features of VGG-16 (Simonyan and Zisserman 2014).
--
-- VGG's weights are frozen and named as torchvision has them, below "vgg".

local nn = require "nn"
local along = require "along"
local layers = require "dalle2.full.layers"

local gan = {}
local lrelu = nn.leaky_relu

-- x [b, c, h, w] -> logits of patches [b, 1, h', w'].
function gan.judge(o, x)
  return dpc.scope("discr", function()
    local y = lrelu(layers.conv("layers.0.0", x, o.dim, 5, { pad = 2 }))
    local c = o.dim
    for i = 1, o.discr_layers do
      c = o.dim * 2 ^ (i - 1) // 1 | 0
      y = dpc.scope("layers." .. i, function()
        local z = layers.conv("0", y, c, 4, { stride = 2, pad = 1 })
        return lrelu(layers.group_norm("1", z, 16))
      end)
    end
    y = lrelu(layers.conv("to_logits.0", y, c, 1))
    return layers.conv("to_logits.2", y, 1, 4)
  end)
end

local function log(x) return (x + 1e-10):log() end

function gan.generator_loss(o, fake)
  return o.use_hinge_loss and -nn.mean(fake) or -nn.mean(log(fake:sigmoid()))
end

local function discriminator_loss(o, fake, real)
  if o.use_hinge_loss then
    return nn.mean((fake + 1):relu() + (1 - real):relu())
  end
  return -nn.mean(log(1 - fake:sigmoid()) + log(real:sigmoid()))
end

-- 10 (|d logits / d x| - 1)^2, mean over the batch (Gulrajani et al. 2017).
-- It is differentiated once more on the way to the weights.
local function gradient_penalty(x, logits)
  local sum = logits:move("bchw->")
  local g = dpc.grad(sum, { x })[1]                        -- like x
  local length = (g * g):move("bchw->b"):sqrt()            -- [b]
  local off = length - 1
  return nn.mean(off * off) * 10
end

-- x, y [b, c, h, w]: true, drawn.  f32 [].
function gan.loss(o, x, y, more)
  local fake, real = gan.judge(o, y), gan.judge(o, x)
  local loss = discriminator_loss(o, fake, real)
  if more and more.add_gradient_penalty == false then
    return loss
  end
  return loss + gradient_penalty(x, real)
end

-- What fooling counts against likeness: the ratio of their gradients at the
-- last layer's weight, at most 1e4; f32 [], through which none flows.
function gan.balance(perceived, fooled, last)
  local function length(loss)
    local g = dpc.grad(loss, { last })[1]
    local sig = ("abcd"):sub(1, #g:dims()) .. "->"
    return (g * g):move(sig):sqrt()
  end
  return (length(perceived) / (length(fooled) + 1e-8)):minimum(1e4):stop()
end

---- VGG-16 ----

-- Channels of its convolutions; 0: the largest of 2 x 2.
local FEATURES = { 64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0,
                   512, 512, 512, 0 }

-- n bins of a dimension, each the mean of the elements that touch it.
local function binned(x, dim, n)
  local have, rows = x:dim(dim), {}
  if have == n then
    return x
  end
  for i = 0, n - 1 do
    local from, to = i * have // n, -(-(i + 1) * have // n)
    rows[i + 1] = {}
    for k = 0, have - 1 do
      rows[i + 1][k + 1] = k >= from and k < to and 1 / (to - from) or 0
    end
  end
  return along.map(x, dim, dpc.const(rows))
end

local function pooled(x)
  if x:dim(2) % 2 ~= 0 then
    x = x:slice{ dim = 2, at = 0, size = x:dim(2) - 1 }
  end
  if x:dim(3) % 2 ~= 0 then
    x = x:slice{ dim = 3, at = 0, size = x:dim(3) - 1 }
  end
  return x:move("b c (h p) (w q) -> b c h w p q", { p = 2, q = 2 })
      :max("bchwpq->bchw")
end

-- x [b, c, h, w], c 3 or 1 -> the second hidden layer [b, 4096].
function gan.vgg(x)
  if x:dim(1) == 1 then
    x = x:move("bzhw->bchw", { c = 3 })
  end
  return nn.frozen(function()
    return dpc.scope("vgg", function()
      local at = 0
      for _, c in ipairs(FEATURES) do
        if c == 0 then
          x, at = pooled(x), at + 1
        else
          x = layers.conv("features." .. at, x, c, 3, { pad = 1 }):relu()
          at = at + 2
        end
      end
      x = binned(binned(x, 2, 7), 3, 7):move("bchw->b(chw)")
      x = layers.linear("classifier.0", x, 4096):relu()
      x = layers.dropout(x, 0.5)
      return layers.linear("classifier.3", x, 4096):relu()
    end)
  end)
end

return gan
