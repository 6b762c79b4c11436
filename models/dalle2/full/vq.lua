-- vq.lua -- vector quantization (van den Oord et al. 2017) as
-- vector-quantize-pytorch has it: a codebook that is the moving average of
-- what was put into each code, by cosine or by distance.
--
-- In training, a step moves the codebook, and `moves` holds the states and
-- what they become; states bear the original's names and a leading dimension
-- of one.  Shapes: N vectors, K codes, D width.

local nn = require "nn"
local along = require "along"
local layers = require "dalle2.full.layers"

local vq = {}
vq.__index = vq

-- o: codebook_dim, codebook_size, decay, commitment_weight, kmeans_init,
-- use_cosine_sim, eps, kmeans_iters, threshold_ema_dead_code
local function new(o)
  return setmetatable({ o = o }, vq)
end

local function unit(self, x)
  return self.o.use_cosine_sim and nn.l2_norm(x) or x
end

-- The states embed, embed_avg [1, K, D], cluster_size [1, K], initted [1].
local function states(self)
  local o = self.o
  local dims = { 1, o.codebook_size, o.codebook_dim }
  local embed = dpc.state("embed", dims, { init = function(d)
    if o.kmeans_init then
      return 0
    end
    local bound = (6 / (o.codebook_size * o.codebook_dim)) ^ 0.5
    return unit(self, nn.uniform(bound)(d))
  end })
  return {
    embed = embed,
    average = dpc.state("embed_avg", dims, { init = embed }),
    size = dpc.state("cluster_size", { 1, dims[2] }),
    made = dpc.state("initted", { 1 }, { init = o.kmeans_init and 0 or 1 }),
  }
end

---- codes ----

-- How near x [N, D] is to each of code [K, D]: [N, K], larger is nearer.
local function nearness(self, x, code)
  local inner = x:dot(code, "nd,kd->nk")
  if self.o.use_cosine_sim then
    return inner
  end
  local square = (x * x):move("nd->n")
  local other = (code * code):move("kd->k")
  return inner * 2 - nn.like(square, "n->nk", inner)
      - nn.like(other, "k->nk", inner)
end

-- Number of the nearest code, f32 [N], and 1 there, else 0: [N, K].
local function chosen(self, x, code)
  local number = along.argmax(nearness(self, x, code), 1)
  return number, nn.one_hot(number, self.o.codebook_size)
end

-- K rows of x [N, D], at random: each at most once where there are enough.
local function sampled(x, k)
  local n, index = x:dim(0), nil
  if n >= k then
    index = along.top(dpc.random("uniform", { n }), k, 0)  -- [K]
  else
    index = nn.random_int(n, { k })
  end
  return along.pick(x, index)
end

-- Centres of x [N, D], and how many belong to each (Lloyd's algorithm).
local function kmeans(self, x)
  local k = self.o.codebook_size
  local means, bins = sampled(x, k), nil                   -- [K, D], [K]
  for _ = 1, self.o.kmeans_iters do
    local _, hot = chosen(self, x, means)                  -- [N, K]
    bins = hot:move("nk->k")
    local sum = hot:dot(x, "nk,nd->kd")
    local new_ = unit(self, sum / nn.like(bins:maximum(1), "k->kd", sum))
    means = nn.like(bins, "k->kd", means):where(new_, means)
  end
  return means, bins
end

-- The codebook before this step: that of k-means when there is none.
local function started(self, s, x)
  local function flat(v) return v:move("znd->nd") end
  local embed, average = flat(s.embed), flat(s.average)
  local size = s.size:move("zk->k")
  if not self.o.kmeans_init then
    return embed, average, size
  end
  local means, bins = kmeans(self, x)
  local made = s.made:move("z->")                          -- []
  return made:where(embed, means),
      made:where(average, means * nn.like(bins, "k->kd", means)),
      made:where(size, bins)
end

-- Codes that few vectors go to are replaced by vectors of this batch.
local function revived(self, x, embed, average, size)
  local least = self.o.threshold_ema_dead_code
  if least == 0 then
    return embed, average, size
  end
  local dead = size:lt(least)                              -- [K]
  local fresh = unit(self, sampled(x, self.o.codebook_size))
  local row = nn.like(dead, "k->kd", embed)
  return row:where(fresh, embed), row:where(fresh * least, average),
      dead:where(least, size)
end

-- The codebook after this step; x [N, D] went to the codes in hot [N, K].
local function moved(self, s, x, hot, average, size)
  local o = self.o
  size = size * o.decay + hot:move("nk->k") * (1 - o.decay)
  average = average * o.decay + hot:dot(x, "nk,nd->kd") * (1 - o.decay)
  local total = size:move("k->")                           -- []
  local smooth = (size + o.eps) / (total + o.codebook_size * o.eps) * total
  local embed = unit(self, average / nn.like(smooth, "k->kd", average))
  embed, average, size = revived(self, x, embed, average, size)
  self.moves = {
    { s.embed, embed:move("kd->zkd", { z = 1 }) },
    { s.average, average:move("kd->zkd", { z = 1 }) },
    { s.size, size:move("k->zk", { z = 1 }) },
    { s.made, dpc.const(1, { 1 }) },
  }
  for _, move in ipairs(self.moves) do
    dpc.set(move[1], move[2])
  end
end

---- forward ----

-- x [b, c, h, w] -> quantized, like x; numbers of codes f32 [b, h, w]; the
-- commitment loss f32 [].  In training the codebook moves.
function vq:forward(x)
  local o, c, b, h = self.o, x:dim(1), x:dim(0), x:dim(2)
  local training = layers.is_training()
  local flat = x:move("b c h w -> (b h w) c")
  local narrow = o.codebook_dim ~= c
  if narrow then
    flat = layers.linear("project_in", flat, o.codebook_dim)
  end
  flat = unit(self, flat)                                  -- [N, D]
  local code, number, hot, average, size
  dpc.scope("_codebook", function()
    local s, fixed = states(self), flat:stop()
    if training then
      code, average, size = started(self, s, fixed)
    else
      code = s.embed:move("zkd->kd")
    end
    number, hot = chosen(self, fixed, code)
    if training then
      moved(self, s, fixed, hot, average, size)
    end
  end)
  local q = hot:dot(code, "nk,kd->nd"):stop()              -- [N, D]
  local loss = dpc.const(0, {})
  if training then
    loss = nn.mse(q, flat) * o.commitment_weight
    q = nn.straight_through(flat, q)
  end
  if narrow then
    q = layers.linear("project_out", q, c)
  end
  local split = { b = b, h = h }
  return q:move("(b h w) c -> b c h w", split),
      number:move("(b h w) -> b h w", split), loss
end

return { new = new }
