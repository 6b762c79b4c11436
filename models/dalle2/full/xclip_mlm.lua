-- xclip_mlm.lua -- CLIP's masked language model on the text (Devlin et al.
-- 2018): some tokens are hidden, and guessed from the others.

local nn = require "nn"
local along = require "along"
local layers = require "dalle2.full.layers"
local options = require "dalle2.full.options"

local mlm = {
  declared = {
    mlm_mask_prob = options.share(0.15),
    mlm_replace_prob = options.share(0.9),
    mlm_random_token_prob = options.share(0),
    mlm_mask_token_id = options.count(2), mlm_pad_token_id = 0,
    mlm_mask_ignore_token_ids = options.maybe("table"),
  },
}

-- 1 for tokens [b, n] that may be hidden.
local function open(o, tokens)
  local y = 1 - tokens:eq(o.mlm_pad_token_id)
  for _, id in ipairs(o.mlm_mask_ignore_token_ids or {}) do
    y = y * (1 - tokens:eq(id))
  end
  return y
end

-- Of the open tokens [b, n] a share p, rounded up, at random: f32 [b, n].
-- As in the original, the number of a row's choices is cut where the count of
-- open tokens from the left exceeds that share.
local function subset(may, p)
  local n = may:dim(1)
  local most = math.ceil(p * n)
  local wanted = -((-(may:move("bn->b") * p)):floor())     -- rounded up, [b]
  local excess = nn.like(wanted, "b->bn", may):lt(along.cumsum(may, 1))
      :slice{ dim = 1, at = 0, size = most }               -- [b, most]
  local u = may:where(dpc.random("uniform", may:dims()), -1e9)
  local index = along.top(u, most, 1) + 1                  -- [b, most]
  index = excess:where(0, index)
  local place = dpc.iota({ may:dim(0), most, n }, 2) + 1
  return place:eq(nn.like(index, "bk->bkn", place)):max("bkn->bn")
end

-- tokens i32 [b, n]; clip: x-clip's.  f32 []: mean over hidden tokens.
function mlm.loss(clip, tokens)
  local o = clip.o
  local t = layers.real(tokens)                            -- [b, n]
  local hidden = subset(open(o, t), o.mlm_mask_prob)
  local shown = t
  local label = hidden:where(t, o.mlm_pad_token_id)
  if o.mlm_random_token_prob > 0 then
    local other = nn.random_int(o.num_text_tokens, t:dims())
    local swap = nn.bernoulli(o.mlm_random_token_prob, t:dims())
        * open(o, other)
    shown, hidden = swap:where(other, shown), hidden * (1 - swap)
  end
  local cover = hidden * nn.bernoulli(o.mlm_replace_prob, t:dims())
  shown = cover:where(o.mlm_mask_token_id, shown)
  local mask = 1 - t:eq(o.text_pad_id)
  local x = clip:text(shown:cast("i32"), mask)
  local logit = layers.linear("mlm.to_logits", x, o.num_text_tokens)
  logit = logit:slice{ dim = 1, at = 1, size = logit:dim(1) - 1 }
  local right = logit:dims()
  local hit = dpc.iota(right, 2):eq(nn.like(label, "bn->bnc", logit))
  local each = (nn.log_softmax(logit) * hit):move("bnc->bn")
  local counts = 1 - label:eq(o.mlm_pad_token_id)
  return -(each * counts):move("bn->") / counts:move("bn->")
end

return mlm
