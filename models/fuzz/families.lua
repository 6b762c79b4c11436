-- families.lua -- nine kinds of model, each as small as it can be and still
-- have what makes its kind hard to partition: skips, tied weights, coupled
-- batches, frozen parts, noise, gathers, windows, second derivatives.
-- A family is a function of the draws that returns a loss f32 [].

local nn = require "nn"
local diffusion = require "diffusion"

local B = 8                              -- batch: 8 parts at most

local family = {}

-- Attention in one piece, or by scores in memory.
local function piece(draw) return draw.coin() and 0 or nil end

-- What fn makes, now and then with weights that stay as they are.
local function maybe_frozen(draw, fn)
  if draw.below(4) == 0 then return nn.frozen(fn) end
  return fn()
end

-- A deep perceptron, sometimes with a norm and dropout.
function family.perceptron(draw)
  local k = draw.pick{ 8, 16, 24 }
  local x = dpc.input("x", { B, k })                         -- [b, k]
  local y = dpc.input("y", { B, 4 })
  local act = draw.pick{ nn.silu, nn.gelu_tanh, nn.leaky_relu }
  for i = 1, 1 + draw.below(4) do
    local k = draw.pick{ 8, 16, 32 }
    local h = maybe_frozen(draw, function()
      return nn.linear("l" .. i, x, k)
    end)
    if draw.coin() then h = nn.layer_norm("norm" .. i, h) end
    x = act(h, 0.1)
    if draw.coin() then x = nn.dropout(x, 0.2) end
  end
  return nn.mse(nn.linear("out", x, 4), y)
end

-- A causal transformer over tokens; the last layer may be the table again.
function family.gpt(draw)
  local words, n, heads = 16, draw.pick{ 4, 8 }, draw.pick{ 2, 4 }
  local k = heads * draw.pick{ 4, 8 }
  local ids = dpc.input("ids", { B, n }, "i32")              -- [b, n]
  local h, table_ = nn.embedding("words", ids, words, k)     -- [b, n, k]
  local place = nn.weight("place", { n, k }, nn.normal(0.1))
  h = h + nn.like(place, "nk->bnk", h)
  for i = 1, 1 + draw.below(3) do
    local o = { causal = true, scores = piece(draw) }
    h = maybe_frozen(draw, function()
      return nn.transformer("block" .. i, h, heads, o)
    end)
  end
  h = nn.rms_norm("norm", h)
  local tied = table_ and draw.coin()
  local logit = tied and h:dot(table_, "bnk,vk->bnv")
      or nn.linear("out", h, words)                          -- [b, n, v]
  local want = nn.one_hot(ids:move("bn->(bn)"), words)
  return nn.cross_entropy(logit:move("bnv->(bn)v"), want)
end

-- A U-Net with skips by concatenation or sum, norms in groups, attention in
-- the middle where it is not deep; predicts the noise.
function family.unet(draw)
  local c, levels = draw.pick{ 4, 8 }, 1 + draw.below(2)
  local x0 = dpc.input("x", { B, 3, 8, 8 })                  -- [b, c, h, w]
  local process = diffusion.new{ predict = draw.pick{ "noise", "v", "x0" } }
  local joined = draw.coin()
  return process:loss(x0, function(x, t)
    local cond = nn.time_embedding("time", t, 8, 8)          -- [b, 8]
    local wide = levels == 1                  -- or deep, else it grows large
    local o = { cond = wide and draw.coin() and cond or nil, groups = 2 }
    local h, skips = nn.conv2d("in", x, c, 3), {}
    for i = 1, levels do
      h = maybe_frozen(draw, function()
        return nn.resnet("down" .. i, h, c * i, o)
      end)
      skips[i] = h
      h = nn.space_to_depth(h, 2)
    end
    if wide then
      h = nn.resnet("mid", h, 4 * c, o)
      o.scores = piece(draw)
      if draw.coin() then h = nn.pixel_attention("attn", h, 2, o) end
    end
    for i = levels, 1, -1 do
      h = nn.nearest(nn.conv2d("up" .. i, h, c * i, 1), 2)
      h = joined and h:concat(skips[i], { dim = 1 }) or h + skips[i]
      h = nn.resnet("right" .. i, h, c * i, o)
    end
    return nn.conv2d("out", h, 3, 3)
  end)
end

-- Two towers that meet in one contrastive loss over the whole batch.
function family.clip(draw)
  local k = draw.pick{ 8, 16 }
  local image = dpc.input("image", { B, 3, 8, 8 })
  local ids = dpc.input("ids", { B, 4 }, "i32")
  local p = nn.space_to_depth(image, 4)                      -- [b, c, 2, 2]
  p = nn.linear("patch", p:move("bchw->b(hw)c"), k)          -- [b, 4, k]
  local q = nn.embedding("words", ids, 8, k)                 -- [b, 4, k]
  for i = 1, 1 + draw.below(2) do
    local o = { causal = draw.coin(), scores = piece(draw) }
    p = maybe_frozen(draw, function()
      return nn.transformer("image" .. i, p, 2, { scores = o.scores })
    end)
    q = nn.transformer("text" .. i, q, 2, o)
  end
  p = nn.unit(nn.mean(p, "bnk->bk"))
  q = nn.unit(draw.coin() and nn.token_at(q, 3) or nn.mean(q, "bnk->bk"))
  local scale = nn.weight("scale", {}, nn.constant(1)):exp() -- []
  local logit = p:dot(q, "bk,ck->bc")
  logit = logit * scale:move("->bc", { b = B, c = B })
  local same = dpc.iota({ B, B }, 0):eq(dpc.iota({ B, B }, 1))
  return (nn.cross_entropy(logit, same)
          + nn.cross_entropy(logit:move("bc->cb"), same)) * 0.5
end

-- Image and text streams with their own weights and one joint attention, a
-- frozen base and low-rank additions that are trained.
function family.mmdit_lora(draw)
  local heads, d, rank = draw.pick{ 2, 4 }, 4, 2
  local k = heads * d
  local image = dpc.input("image", { B, 6, k })              -- [b, n, k]
  local text = dpc.input("text", { B, 4, k })                -- [b, m, k]
  local t = dpc.random("uniform", { B })
  local function lora(name, x, out)
    local base = nn.frozen(function() return nn.linear(name, x, out) end)
    return dpc.scope(name, function()
      local low = nn.linear("a", x, rank, { bias = false })
      return base + nn.linear("b", low, out, { bias = false })
    end)
  end
  local function part(x, first, size)
    return x:slice{ dim = 1, at = first, size = size }
  end
  for i = 1, 1 + draw.below(3) do
    dpc.scope("block" .. i, function()
      local cond = nn.time_embedding("time", t, 4, 6 * k)    -- [b, 6 k]
      local mod = cond:move("b(ik)->ibk", { i = 6 })
      local function pick(j)
        return mod:slice{ dim = 0, at = j, size = 1 }:move("ibk->bk")
      end
      local q = nn.layer_norm("norm", image)
      q = q * (nn.like(pick(0), "bk->bnk", q) + 1)
          + nn.like(pick(1), "bk->bnk", q)
      local joint = q:concat(text, { dim = 1 })              -- [b, n + m, k]
      local function split(name)
        return lora(name, joint, k):move("bn(hd)->bnhd", { h = heads })
      end
      local a, b, v = split("q"), split("k"), split("v")
      local w = nn.softmax(a:dot(b, "bnhd,bmhd->bhnm") * d ^ -0.5)
      local o = w:dot(v, "bhnm,bmhd->bnhd"):move("bnhd->bn(hd)")
      image = image + nn.like(pick(2), "bk->bnk", image)
          * lora("out", part(o, 0, 6), k)
      text = text + nn.mlp("text", part(o, 6, 4), 2 * k)
    end)
  end
  return nn.mse(nn.linear("last", image, k), dpc.input("y", { B, 6, k }))
end

-- A low model and one that refines what it made large, both at once.
function family.cascade(draw)
  local x = dpc.input("x", { B, 3, 8, 8 })
  local small = nn.space_to_depth(x, 2):move("b(krs)hw->bkhw",
                                             { r = 2, s = 2 }) * 0.25
  local c = draw.pick{ 4, 8 }
  local function net(name, h, out)
    return dpc.scope(name, function()
      h = nn.resnet("a", nn.conv2d("in", h, c, 3), c, { groups = 2 })
      local o = { groups = 2, scores = piece(draw) }
      if draw.coin() then h = nn.pixel_attention("b", h, 2, o) end
      return nn.conv2d("out", h, out, 3)
    end)
  end
  local noise = dpc.random("normal", small:dims())
  local low = maybe_frozen(draw, function()
    return net("low", small + noise, 3)
  end)
  local seen = draw.coin() and low:stop() or low
  local high = net("high", nn.nearest(seen, 2), 3)
  return nn.mse(low, noise) + nn.mse(high, x) * 0.5
end

-- A prior: tokens of time, text and noise in a row, read at a last query.
function family.prior(draw)
  local heads = draw.pick{ 2, 4 }
  local k = 4 * heads
  local text = dpc.input("text", { B, k })
  local image = nn.unit(dpc.input("image", { B, k }))
  local process = diffusion.new{}
  return (process:loss(image, function(x, t)
    local query = nn.weight("query", { k }, nn.normal(0.1))
    local row = nn.token(nn.time_embedding("time", t, 8, k))
    row = row:concat(nn.token(text), { dim = 1 })
    row = row:concat(nn.token(x), { dim = 1 })
    row = row:concat(nn.like(query, "k->bnk", nn.token(x)), { dim = 1 })
    for i = 1, 1 + draw.below(3) do
      row = nn.transformer("block" .. i, row, heads,
                           { causal = true, scores = piece(draw) })
    end
    return nn.linear("out", nn.token_at(row, 3), k)
  end))
end

-- A table that is read by indices and written by their gradient, and a
-- picture read by strided, dilated filters.
function family.classifier(draw)
  local kind = dpc.input("kind", { B }, "i32")
  local x = dpc.input("x", { B, 3, 8, 8 })
  local h = nn.conv2d("c1", x, 8, 3, { stride = 1 + draw.below(2) }):relu()
  h = nn.conv2d("c2", h, 8, 3, { dilate = 2, pad = 2 })
  h = nn.silu(nn.group_norm("n", h, draw.pick{ 1, 2, 4 }))
  local y = h:max("bchw->bc") + nn.mean(h, "bchw->bc")       -- [b, 8]
  y = y * nn.embedding("kinds", kind, 4, 8)
  return nn.cross_entropy(nn.linear("out", y, 4), nn.one_hot(kind, 4))
end

-- A gradient within the loss.
function family.penalty(draw)
  local x = dpc.input("x", { B, 8 })
  local w = nn.weight("w", { 8, 16 }, nn.lecun(8))
  local h = x:dot(w, "bk,kn->bn")
  h = draw.coin() and h:tanh() or nn.silu(h)
  local score = nn.mean(nn.linear("out", h, 1))
  local g = dpc.grad(score, { w })[1]                        -- [8, 16]
  local d = nn.l2_norm(g) - 1
  return score + nn.mean(d * d) * 10
end

local names = {}
for name in pairs(family) do names[#names + 1] = name end
table.sort(names)

return {
  at = function(seed)
    local name = names[seed % #names + 1]
    return name, family[name]
  end,
}
