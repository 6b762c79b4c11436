-- laws.lua -- what nn, optim, diffusion and the data promise, as numbers that
-- should be zero: each out of `laws` is the largest deviation from the law
-- that its name says; `train` is a step whose result can be told by hand.
local nn = require "nn"
local optim = require "optim"
local diffusion = require "diffusion"
local data = require "dalle2.data"

-- Largest |a - b|, f32 [].
local function far(a, b)
  local d = (a - b):abs()
  return d:max(("abcdefgh"):sub(1, #d:dims()) .. "->")
end

local function normal(...)
  return dpc.random("normal", { ... })
end

---- nn ----

local function layers(law)
  local x = normal(3, 8) * 5 + 100                         -- [3, 8]
  law.softmax_sums_to_one = far(nn.softmax(x):move("bk->b"), 1)
  law.log_softmax_is_its_log = far(nn.log_softmax(x):exp(), nn.softmax(x))
  law.unit_has_length_one = far((nn.unit(x) * nn.unit(x)):move("bk->b"), 1)
  local even = dpc.const(7, { 3, 8 })
  law.cross_entropy_of_even_is_log_n =
      far(nn.cross_entropy(even, nn.softmax(x)), math.log(8))
  local y = nn.layer_norm("norm", x)                       -- [3, 8]
  law.layer_norm_has_mean_zero = nn.mean(y, "bk->b"):abs():max("b->")
  law.layer_norm_has_variance_one =
      far(nn.mean(y * y, "bk->b"), 1):maximum(1e-6) - 1e-6
  local p = normal(2, 3, 4, 6)                             -- [b, c, h, w]
  law.depth_to_space_inverts =
      far(nn.depth_to_space(nn.space_to_depth(p, 2), 2), p)
  law.nearest_repeats_pixels =
      far(nn.mean(nn.nearest(p, 2)), nn.mean(p))
  local label = dpc.const({ 0, 3, 1 })
  law.one_hot_finds_the_label =
      far(nn.one_hot(label, 4):dot(dpc.iota({ 4 }, 0), "bc,c->b"), label)
end

-- Token 0 of a causal layer does not change with the others; without causal
-- it does.
local function attention(law)
  local x, z = normal(2, 1, 8), normal(2, 3, 8)
  local function first(name, rest, o)
    local y = nn.attention(name, x:concat(rest, { dim = 1 }), 2, o)
    return nn.token_at(y, 0)                               -- [2, 8]
  end
  local causal = { causal = true }
  law.causal_tokens_see_no_later_ones =
      far(first("a", z, causal), first("a", z + 1, causal))
  law.other_tokens_see_all =
      far(first("a", z), first("a", z + 1)):le(1e-3)
  local mask = dpc.iota({ 4, 4 }, 1):lt(1)                 -- only token 0
  law.a_mask_hides_tokens =
      far(first("a", z, { mask = mask }), first("a", z + 1, { mask = mask }))
end

-- A transposed convolution is the adjoint of a convolution.
local function windows(law)
  local x, y = normal(2, 3, 8, 8), normal(2, 5, 4, 4)
  local up = nn.conv_transpose2d("up", y, 3, 4, { pad = 1, bias = false })
  local down = x:conv(dpc.leaf("up.w"), { stride = 2, pad = 1 })
  law.transposed_is_adjoint = far((up * x):move("abcd->"),
                                  (down * y):move("abcd->")) / 100
end

-- The gradient penalty of a critic (Gulrajani et al. 2017): its own gradient,
-- by second order, is the difference quotient of the penalty.
local function critic(x, w)
  local h = nn.leaky_relu(x:conv(w, { stride = 2, pad = 1 }))
  h = nn.leaky_relu(nn.group_norm("critic", h, 2))         -- [b, 4, 4, 4]
  return (h:tanh() * h):move("bchw->")
end

local function penalty(x, w)
  local g = dpc.grad(critic(x, w), { x })[1]               -- like x
  local length = ((g * g):move("bchw->b") + 1e-12):sqrt()  -- [b]
  return nn.mean((length - 1) * (length - 1), "b->")
end

local function second_order(law)
  local x, w, way = normal(2, 3, 8, 8), normal(4, 3, 4, 4) * 0.2,
                    normal(4, 3, 4, 4)
  local h = 1e-5
  local slope = (penalty(x, w + way * h) - penalty(x, w - way * h)) / (2 * h)
  local gradient = dpc.grad(penalty(x, w), { w })[1]
  law.a_penalty_has_a_gradient =
      far((gradient * way):move("abcd->"), slope) / slope:abs()
end

---- diffusion ----

-- A network that knows x0 leads every sampler to it.
local function samplers(law)
  local x0 = normal(2, 3)
  for _, schedule in ipairs{ "cosine", "linear" } do
    for _, predict in ipairs{ "x0", "noise", "v" } do
      for eta = 0, 1 do
        local way = diffusion.new{ schedule = schedule, predict = predict }
        local x, n = normal(2, 3), dpc.const(4)
        for i = 0, 3 do
          local t, to = diffusion.times(dpc.const(i), n)
          x = way:step(x, t, to, function(y, at)
            local a, s = way.schedule(at)                  -- [2]
            a, s = nn.rows(a, y), nn.rows(s, y)
            local noise = (y - a * x0) / s
            return ({ x0 = x0, noise = noise, v = a * noise - s * x0 })
                [predict]
          end, eta > 0 and eta or nil)
        end
        law[("%s_%s_eta%d_ends_at_x0"):format(schedule, predict, eta)] =
            far(x, x0)
      end
    end
    local way = diffusion.new{ schedule = schedule }
    local a, s = way.schedule(dpc.iota({ 11 }, 0) * 0.1)
    law[schedule .. "_keeps_variance"] = far(a * a + s * s, 1)
  end
  local way = diffusion.new{}
  law.a_perfect_network_has_no_loss = (way:loss(x0, function() return x0 end))
end

---- data ----

local function captions(law)
  local d = data.batch(400)
  local colour, ground, garment = data.parse(d.tokens)
  law.a_caption_says_the_colour = far(colour, d.colour)
  law.a_caption_says_the_background = far(ground, d.background)
  law.a_caption_says_the_garment = far(garment, d.garment)
  local c, g, n = data.parse(data.all_captions())
  law.all_captions_stand_in_order = far(data.caption_number(c, g, n),
                                        dpc.iota({ data.captions }, 0))
  local never = d.colour * 3 + 1                           -- [400]
  never = never - ((never + 0.5) * 0.1):floor() * 10
  law.held_out_pairs_are_never_drawn =
      never:eq(d.garment):move("b->")
  local all = data.batch(400, true)
  local some = all.colour * 3 + 1
  some = some - ((some + 0.5) * 0.1):floor() * 10
  law.but_are_when_all_are_asked =
      some:eq(all.garment):move("b->"):lt(1)
  local ink = far(data.paint(d.grey * 0, colour, ground),
                  nn.like(data.background_rgb(ground), "bc->bchw",
                          d.picture))
  law.where_nothing_is_the_background_shows = ink
end

local function laws()
  local law = {}
  layers(law)
  attention(law)
  windows(law)
  second_order(law)
  samplers(law)
  captions(law)
  return law
end

---- optim: loss = sum (w - x)^2 / 2, gradient w - x ----

local function train()
  local x = dpc.input("x", { 2, 2 })
  local w = dpc.param("w", { 2, 2 }, { init = nn.ones })
  local b = dpc.param("b", { 2 })
  local loss = (w - x) * (w - x)
  local tilt = dpc.input("tilt", { 2 })
  return optim.step(loss:move("ab->") * 0.5 + (b * tilt):move("a->"), {
    lr = 0.1, lr_min = 0.02, warmup = 2, steps = 6, clip = 3, decay = 0.5,
    b1 = 0.8, b2 = 0.9, ema = 0.5,
  })
end

return { name = "laws", entries = { laws = laws, train = train } }
