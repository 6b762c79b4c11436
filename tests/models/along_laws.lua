-- along_laws.lua -- what along and the small functions of nn promise, as numbers
-- that should be zero: each out is the largest deviation from the law that
-- its name says.
local nn = require "nn"
local along = require "along"

-- Largest |a - b|, f32 [].
local function far(a, b)
  local d = (a - b):abs()
  return d:max(("abcdefgh"):sub(1, #d:dims()) .. "->")
end

local function normal(...)
  return dpc.random("normal", { ... })
end

local few = { { 3, -1, 4, 1, -5, 9, 2, 6 }, { 5, 3, 5, 8, 9, 7, 9, 3 } }

local function order(law)
  local x = dpc.const(few)                                 -- [2, 8]
  law.cumsum = far(along.cumsum(x, 1),
                   dpc.const{ { 3, 2, 6, 7, 2, 11, 13, 19 },
                              { 5, 8, 13, 21, 30, 37, 46, 49 } })
  law.argmax_is_the_first = far(along.argmax(x, -1), dpc.const{ 5, 4 })
  law.argmax_of_columns = far(along.argmax(x, 0),
                              dpc.const{ 1, 1, 1, 1, 1, 0, 1, 0 })
  law.rank = far(along.rank(x, 1), dpc.const{ { 3, 6, 2, 5, 7, 0, 4, 1 },
                                              { 4, 6, 5, 2, 0, 3, 1, 7 } })
  law.top = far(along.top(x, 3, 1), dpc.const{ { 5, 7, 2 }, { 4, 6, 3 } })
  law.sort = far(along.sort(x, 1), dpc.const{ { 9, 6, 4, 3, 2, 1, -1, -5 },
                                              { 9, 9, 8, 7, 5, 5, 3, 3 } })
  law.median = far(along.quantile(x, 0.5, 1), dpc.const{ 2.5, 6 })
  law.quantile = far(along.quantile(x, 0.9, 1), dpc.const{ 6.9, 9 })
  law.least = far(along.quantile(x, 0, 1), along.min(x, 1))
  law.most = far(along.quantile(x, 1, 1), x:max("ab->a"))
  local y = normal(3, 50, 2)                               -- [3, 50, 2]
  local sorted = along.sort(y, 1)
  law.a_quantile_lies_between_neighbours =
      far(along.quantile(y, 0.3, 1),
          sorted:slice{ dim = 1, at = 35, size = 1 }:move("abc->ac") * 0.3
          + sorted:slice{ dim = 1, at = 34, size = 1 }:move("abc->ac") * 0.7)
end

local function picks(law)
  local x = normal(2, 5, 3)
  local top = along.top(x:slice{ dim = 2, at = 0, size = 1 }
                        :move("abc->ab"), 2, 1)            -- [2, 2]
  law.the_best_is_the_largest =
      far(nn.token_at(along.pick(x, top), 0)
              :slice{ dim = 1, at = 0, size = 1 }:move("ab->a"),
          x:slice{ dim = 2, at = 0, size = 1 }:max("abc->a"))
  local table, ids = normal(5, 2, 3), dpc.const({ { 3, 0 }, { 4, 3 } },
                                                 nil, "i32")
  law.rows_of_a_table =
      far(along.rows(table, ids),
          along.take(table, 0, { 3, 0, 4, 3 }):move("(ab)cd->abcd",
                                                    { b = 2 }))
  law.rows_by_a_number = far(along.rows(dpc.const{ 5, 6, 7 },
                                        dpc.const{ 2, 0 }),
                             dpc.const{ 7, 5 })
  law.whole_numbers_add = far((dpc.iota({ 2, 2 }, 1, "i32") + ids)
                                  :cast("f32"),
                              dpc.const{ { 3, 1 }, { 4, 4 } })
  law.flip_twice_is_nothing = far(along.flip(along.flip(x, 1), 1), x)
  law.reflect = far(along.reflect(dpc.const{ 1, 2, 3, 4 }, 0, 2, 3),
                    dpc.const{ 3, 2, 1, 2, 3, 4, 3, 2, 1 })
  law.pad = far(along.pad(dpc.const{ 1, 2 }, 0, 1, 2),
                dpc.const{ 0, 1, 2, 0, 0 })
  local a, b = along.chunk(x, 2, 0)
  law.chunks = far(a:concat(b, { dim = 0 }), x)
end

local function sizes(law)
  local x = dpc.iota({ 2, 6 }, 1)
  law.nearest_down = far(along.nearest(x, 1, 4), dpc.const{ { 0, 1, 3, 4 },
                                                            { 0, 1, 3, 4 } })
  law.nearest_up = far(along.nearest(x, 1, 8):slice{ dim = 0, size = 1 },
                       dpc.const{ { 0, 0, 1, 2, 3, 3, 4, 5 } })
  law.nearest_exact = far(along.nearest(x, 1, 4, true)
                              :slice{ dim = 0, size = 1 },
                          dpc.const{ { 0, 2, 3, 5 } })
  local ones = dpc.const(1, { 2, 40 })
  law.cubic_keeps_a_constant =
      far(along.cubic(ones, 1, 24):slice{ dim = 1, at = 4, size = 16 }, 1)
  law.cubic_keeps_a_line =
      far(along.cubic(dpc.iota({ 40 }, 0), 0, 80)
              :slice{ dim = 0, at = 8, size = 60 },
          dpc.iota({ 60 }, 0) * 0.5 + 3.75) / 100
end

local function functions(law)
  local x = dpc.const{ { -2, -0.5, 0, 1 }, { 3, 0.1, -7, 2 } }
  law.leaky_relu = far(nn.leaky_relu(x),
                       dpc.const{ { -0.2, -0.05, 0, 1 },
                                  { 3, 0.1, -0.7, 2 } })
  law.clamp = far(nn.clamp(x, -1, 2), dpc.const{ { -1, -0.5, 0, 1 },
                                                 { 2, 0.1, -1, 2 } })
  law.gelu_tanh_is_nearly_gelu =
      far(nn.gelu_tanh(x), nn.gelu(x)):maximum(1e-3) - 1e-3
  law.quick_gelu_is_nearly_gelu =
      far(nn.quick_gelu(x), nn.gelu(x)):maximum(0.03) - 0.03
  law.log_sum_exp = far(nn.log_sum_exp(x * 50 + 1000),
                        dpc.const{ 1050, 1150 }) / 1000
  local mask = dpc.const{ { 1, 0, 1, 0 } }
  law.masked_softmax_is_zero_there =
      far(nn.masked_softmax(x, mask) * (1 - mask), 0)
  law.masked_softmax_sums_to_one =
      far(nn.masked_softmax(x, mask):move("ab->a"), 1)
  local zero = dpc.const(0, { 2, 3 })
  law.l2_norm_of_zeros_is_zero = far(nn.l2_norm(zero), 0)
  law.l2_norm_of_zeros_has_a_gradient = 1 - far(
      dpc.grad(nn.l2_norm(zero):move("ab->"), { zero })[1], 0):le(1e13)
  law.a_straight_way_forwards =
      far(nn.straight_through(x, x:floor()), x:floor())
  law.a_straight_way_backwards =
      far(dpc.grad(nn.straight_through(x, x:floor()):move("ab->"), { x })[1],
          1)
  local coin = nn.bernoulli(0.25, { 4000 })
  law.coins_are_fair = far(nn.mean(coin), 0.25):maximum(0.03) - 0.03
  law.coins_have_two_sides = far(coin * coin, coin)
  local dice = nn.random_int(6, { 6000 })
  law.dice_are_fair =
      far(nn.mean(nn.one_hot(dice, 6), "ab->b"), 1 / 6):maximum(0.03) - 0.03
end

local function windows(law)
  local x, w = normal(2, 6, 7, 7), normal(4, 3, 3, 3)
  local o = { stride = 2, pad = 1 }
  local function part(v, dim, size, i)
    return v:slice{ dim = dim, at = i * size, size = size }
  end
  local apart = {}
  for i = 0, 1 do
    apart[i] = part(x, 1, 3, i):conv(part(w, 0, 2, i), o)
  end
  local y = x:conv(w, { stride = 2, pad = 1, g = 2 })
  law.groups_are_convolutions_apart =
      far(y, apart[0]:concat(apart[1], { dim = 1 })) / 10
  -- the gradient's square, differentiated again: d/dx |y|^2 = 2 dx(y)
  local dx, dw = table.unpack(dpc.grad((y * y):move("abcd->"), { x, w }))
  law.a_grouped_gradient_to_the_picture =
      far((dx * x):move("abcd->"), (y * y):move("abcd->") * 2) / 1e4
  law.a_grouped_gradient_to_the_filters =
      far((dw * w):move("abcd->"), (y * y):move("abcd->") * 2) / 1e4
  local each = normal(6, 1, 4, 4)                          -- depthwise
  law.each_channel_by_itself =
      far(part(x:conv(each, { stride = 2, pad = 1, g = 6 }), 1, 1, 4),
          part(x, 1, 1, 4):conv(part(each, 0, 1, 4), o)) / 10
  law.zeros_right_and_below =
      far(nn.pad2d(x, { 0, 1, 0, 1 }):conv(normal(4, 6, 3, 3) * 0 + 1,
                                           { stride = 2 })
              :slice{ dim = 2, at = 0, size = 2 }
              :slice{ dim = 3, at = 0, size = 2 },
          x:conv(normal(4, 6, 3, 3) * 0 + 1, { stride = 2 })
              :slice{ dim = 2, at = 0, size = 2 }
              :slice{ dim = 3, at = 0, size = 2 }) / 100
end

local function laws()
  local law = {}
  order(law)
  picks(law)
  sizes(law)
  functions(law)
  windows(law)
  return law
end

-- The largest deviation of all, for a binary.
local function worst()
  local top = dpc.const(0, {})
  for _, off in pairs(laws()) do
    top = top:maximum(off)
  end
  return { worst = top }
end

return {
  name = "along", entries = { laws = laws, worst = worst },
  runs = { worst = { "worst" } },
}
