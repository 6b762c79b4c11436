-- transformer.lua -- Qwen-Image's transformer by itself: a velocity for every
-- image token, out of latents, text and time, all of them inputs; with
-- use_additional_t_cond also whether each picture is RGB, 0 or 1.
--
-- `--config config.json` of a released model gives the options; without it
-- they are Qwen-Image's own.

local nn = require "nn"
local mmdit = require "mmdit"
local rope = require "rope"
local flow = require "flow"

local batch = dpc.option("batch", 1, "samples", 1)
local height = dpc.option("height", 64, "rows of image tokens", 1)
local width = dpc.option("width", 64, "columns of image tokens", 1)
local text = dpc.option("text", 512, "tokens of text, filled up", 1)

local function forward()
  local o = mmdit.options(dpc.config)
  local out = nn.frozen(function()
    return mmdit.forward(o, {
      hidden_states = dpc.input("hidden_states",
                                { batch, height * width, o.in_channels }),
      encoder_hidden_states = dpc.input("encoder_hidden_states",
                                { batch, text, o.joint_attention_dim }),
      encoder_hidden_states_mask = dpc.input("encoder_hidden_states_mask",
                                { batch, text }, "u8"):cast("f32"),
      timestep = dpc.input("timestep", { batch }),
      additional_t_cond = o.use_additional_t_cond
          and dpc.input("additional_t_cond", { batch }, "i32") or nil,
      img_shapes = { { 1, height, width } },
    })
  end)
  return { out = out }
end

---- parts: what parity cases ask for ----

local parts = {}

-- call.img_shapes { { frames, rows, columns }, ... }, the target's first.
function parts.transformer(options, x, call)
  local images = call.img_shapes
  local out = mmdit.forward(mmdit.options(options), {
    hidden_states = x.hidden_states, timestep = x.timestep,
    encoder_hidden_states = x.encoder_hidden_states,
    encoder_hidden_states_mask = x.encoder_hidden_states_mask,
    additional_t_cond = x.additional_t_cond, img_shapes = images,
  })
  local n = images[1][1] * images[1][2] * images[1][3]
  return { out = out, target = out:slice{ dim = 1, at = 0, size = n } }
end

-- One block alone: dim, num_attention_heads, attention_head_dim as its
-- constructor has them; inputs img, txt, temb and, for masks, mask [b, m].
function parts.block(options, x, call)
  local own = {}
  for key, value in pairs(options) do
    own[key] = value
  end
  own.dim = nil
  local o, turn = mmdit.options(own), {}
  turn.image, turn.text = rope.turns(call.img_shapes, x.txt:dim(1),
                                     o.axes_dims_rope, o.use_layer3d_rope)
  local image, words = mmdit.block(x.img, x.txt, x.temb, o, turn)
  return { img = image, txt = words, out = image }
end

-- Flow matching of x0, noise [b, c, h, w] at sigma [b], beside reference1 ...
function parts.flow(options, x)
  local beside = { words = x.encoder_hidden_states, references = {},
                   mask = x.encoder_hidden_states_mask }
  while x["reference" .. #beside.references + 1] do
    local i = #beside.references + 1
    beside.references[i] = x["reference" .. i]
  end
  return { loss = mmdit.matching(mmdit.options(options), x.x0, x.noise,
                                 x.sigma, x.sigma, nil, beside) }
end

-- DiffSynth's schedule: its thousand s, their weights, where each lands.
function parts.schedule()
  local list, weight = flow.diffsynth()
  local landed, seen, reachable, off = {}, {}, 0, 0
  for i, k in ipairs(flow.landed(list)) do
    landed[i] = list[k]
    reachable = reachable + (seen[k] and 0 or 1)
    off = math.max(off, math.abs(list[i] - list[k]))
    seen[k] = true
  end
  return { out = dpc.const(list), weight = dpc.const(weight),
           landed = dpc.const(landed), reachable = dpc.const(reachable, {}),
           off = dpc.const(off, {}) }
end

return {
  name = "transformer",
  entries = { forward = forward },
  runs = { sample = { "forward" } },
  parts = parts,
}
