-- optim.lua -- AdamW with clipping, warm-up, cosine decay and moving averages.
--
-- One rule for every parameter, pointwise, so that the compiler can run it as
-- one launch over all of them.  A step whose gradients are not finite changes
-- nothing: the norm of all gradients is finite exactly when each of them is,
-- and it chooses between new and old.  All hyper-parameters are scalars, set
-- when the binary is run.

local optim = {}

-- Operands that the row `total` takes at once.
local TOTAL = 7

-- Sum of a list of f32 [] -> f32 [].
local function total(list)
  while #list > 1 do
    local up = {}
    for i = 1, #list, TOTAL do
      local last = math.min(i + TOTAL - 1, #list)
      up[#up + 1] = i == last and list[i]
          or list[i]:total(table.unpack(list, i + 1, last))
    end
    list = up
  end
  return list[1]
end

local function square_sum(g)
  return #g:dims() == 0 and g * g
      or (g * g):move(("abcdefgh"):sub(1, #g:dims()) .. "->")
end

-- Learning rate of this step, f32 []: up in a line over `warmup` steps, then
-- down along half a cosine from lr to lr_min at `steps` (Loshchilov and Hutter
-- 2017, SGDR, eq. 5).
function optim.rate(o)
  o = o or {}
  local step = dpc.scalar("step", 0, "steps done")         -- []
  local steps = dpc.scalar("steps", o.steps or 1000, "steps of the whole run")
  local lr = dpc.scalar("lr", o.lr or 1e-3, "largest learning rate")
  local low = dpc.scalar("lr_min", o.lr_min or 1e-5,
                         "learning rate at the end")
  local warmup = dpc.scalar("warmup", o.warmup or 100,
                            "steps until the largest learning rate")
  local up = ((step + 1) / warmup:maximum(1)):minimum(1)   -- []
  local done = ((step - warmup) / (steps - warmup):maximum(1))
      :maximum(0):minimum(1)                               -- []
  return up * (low + (lr - low) * ((done * math.pi):cos() + 1) * 0.5)
end

-- One parameter, its gradient g, moments m, v and average e, if any, all f32
-- of one shape; k: what is the same for all, f32 [] each.  Weight decay is
-- decoupled (Loshchilov and Hutter 2019, algorithm 2).
local function update(p, g, k)
  local dims = p:dims()
  local m = dpc.state("adam.m." .. p:name(), dims)
  local v = dpc.state("adam.v." .. p:name(), dims)
  g = g * k.clip
  local m1 = m * k.b1 + g * (1 - k.b1)
  local v1 = v * k.b2 + g * g * (1 - k.b2)
  local move = m1 * k.c1 / ((v1 * k.c2):sqrt() + k.eps)    -- bias-corrected
  if k.decays(p) then
    move = move + p * k.decay
  end
  local p1 = p - move * k.lr
  dpc.set(p, k.ok:where(p1, p))
  dpc.set(m, k.ok:where(m1, m))
  dpc.set(v, k.ok:where(v1, v))
  if k.ema then
    local e = dpc.state("ema." .. p:name(), dims, { init = p })
    dpc.set(e, k.ok:where(e * k.ema + p1 * (1 - k.ema), e))
  end
end

-- Weight of the past in averages at f32 [] step, with `ema` the largest: the
-- first step copies, so what an average starts as is forgotten.
local function average(step, ema)
  return (step / (step + 10)):minimum(ema)
end

local function is_matrix(p) return #p:dims() >= 2 end

-- 1 / (1 - b^(step + 1)): Adam's correction (Kingma and Ba 2015, algorithm 1).
local function correction(b, step)
  return (1 - ((step + 1) * math.log(b)):exp()):recip()
end

-- Append one AdamW step on `loss`, f32 [], to the graph.  Returns metrics:
-- grad_norm (before clipping), lr, finite (1, or 0: nothing was changed).
--   params  those to train (all)         lr, lr_min, warmup, steps, clip,
--   b1, b2, eps  of Adam                 decay, ema  defaults of the scalars
--   rate  f32 [], instead of optim.rate  ema=false: no averages
--   average  function(step, ema) -> weight of the past, both f32 []
--   decays   function(param): whether it is decayed (matrices, filters)
-- Averages are called ema.NAME.  Parameters that the loss does not depend on
-- stay as they are, and have no moments.
function optim.step(loss, o)
  o = o or {}
  local params = dpc.reached(loss, o.params or dpc.params())
  local grads = dpc.grad(loss, params)
  local step = dpc.scalar("step", 0, "steps done")         -- []
  local b1, b2 = o.b1 or 0.9, o.b2 or 0.99
  local squares = {}
  for i, g in ipairs(grads) do
    squares[i] = square_sum(g)                             -- []
  end
  local norm = total(squares):sqrt()                       -- []
  local clip = dpc.scalar("clip", o.clip or 1, "largest norm of the gradient")
  local ema = o.ema ~= false and dpc.scalar("ema", o.ema or 0.995,
                                            "weight of the past in averages")
  local k = {
    ok = norm:finite(), lr = o.rate or optim.rate(o), b1 = b1, b2 = b2,
    eps = o.eps or 1e-8, c1 = correction(b1, step),
    c2 = correction(b2, step), clip = (clip / (norm + 1e-6)):minimum(1),
    ema = ema and (o.average or average)(step, ema),
    decays = o.decays or is_matrix,
    decay = dpc.scalar("decay", o.decay or 0.01, "weight decay"),
  }
  for i, p in ipairs(params) do
    update(p, grads[i], k)
  end
  return { grad_norm = norm, lr = k.lr, finite = k.ok }
end

return optim
