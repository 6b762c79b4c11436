-- A caption's tokens, a padded text embedding and an image embedding: what a
-- prior takes from records.  `takes` chooses among them.
local nn = require "nn"
local optim = require "optim"

local batch, words, long = 4, 8, 6
local takes = dpc.option("takes", "tokens", "tokens, words, text, embed, beside")
local rows = dpc.option("rows", 540, "of the table of tokens")

-- Mean of x [b, n, e] where mask [b, n] is 1.
local function masked(x, mask)
  return (x * mask:move("b n -> b n e", { e = x:dim(2) })):move("b n e -> b e")
end

local function mask_of(name, n)
  return dpc.input(name, { batch, n }, "u8"):cast("f32")
end

local reads = {}
function reads.tokens()
  local id = dpc.input("tokens", { batch, words }, "i32")
  local table = dpc.param("table", { rows, 2 }, { init = nn.normal(1) })
  local n = dpc.input("tokens_length", { batch }, "i32"):cast("f32")
  local sum = masked(table:take(id), mask_of("tokens_mask", words))
  return sum / n:move("b -> b e", { e = 2 })
end
reads.words = reads.tokens
function reads.text()
  local x = dpc.input("text", { batch, long, 2 })
  return masked(x, mask_of("text_mask", long))
end
function reads.embed()
  return dpc.input("image_embed", { batch, 2 })
      + dpc.input("text_embed", { batch, 2 })
end
function reads.beside()
  return dpc.input("emb", { batch, 2 })
end

local function net()
  return nn.linear("out", reads[takes](), 1)               -- [b, 1]
end

local function train()
  local y = net()
  local loss = nn.mean(nn.mean(y * y - y))
  local out = optim.step(loss, { lr = 1e-3, steps = 100 })
  out.loss = loss
  return out
end

local function sample()
  return { seen = reads[takes]() }
end

local meta = takes == "words" and { caption = {
  input = "tokens", length = words,
  vocab = { a = 1, red = 2, boot = 3, shirt = 4 } } } or {}
return { name = "records", meta = meta, runs = { sample = { "sample" } },
         entries = { train = train, sample = sample } }
