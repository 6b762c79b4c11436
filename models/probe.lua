-- probe.lua -- what `dpc cluster probe` times: layers as networks have them, at
-- a few widths, with their backward and optimizer, on numbers drawn at random.
--
-- Nobody learns anything here.  The widths lie where small models have them;
-- each layer is a kind of launch whose speed a cluster file names: products,
-- convolutions, loop nests, transfers of gradients.

local nn = require "nn"
local optim = require "optim"

-- f32 [], the mean of squares of x.
local function square(x)
  local all = ("abcdefgh"):sub(1, #x:dims())
  return nn.mean(x * x, all .. "->")
end

local batch <const> = 16

-- f32 [16, ...], random; `gain` f32 [16] is all that is read.
local function noise(gain, ...)
  local x = dpc.random("normal", { batch, ... })
  return x * nn.rows(gain, x)
end

-- Tokens f32 [16, 32, width] through a block; matrices of one to four widths.
local function text(gain, width)
  local x = noise(gain, 32, width)
  return square(nn.transformer("text" .. width, x, width // 32))
end

-- Pictures f32 [16, c, size, size] through a residual block.
local function picture(gain, c, size)
  local x = noise(gain, c, size, size)
  return square(nn.resnet("picture" .. c, x, c))
end

local function train()
  local gain = dpc.input("gain", { batch })
  local loss = text(gain, 128) + text(gain, 256) + picture(gain, 32, 28)
      + picture(gain, 128, 7)
  local out = optim.step(loss, { lr = 1e-3, steps = 1000 })
  out.loss = loss
  return out
end

return { name = "probe", entries = { train = train } }
