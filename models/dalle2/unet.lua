-- unet.lua -- one Unet as a unit: `--config unet_config.json` holds its
-- keywords.  It is trained as the only stage of a Decoder at its defaults, on
-- pictures of -D size pixels.  `parts` are for cases of docs/parity.md.

local parts = require("dalle2.parts").parts
if not dpc.config then
  return { name = "unet", parts = parts }
end

local size = dpc.option("size", 64, "pixels of a side", 1)
local unit = require("dalle2.full.unit_decoder"){
  unets = { dpc.config }, image_size = size,
  unconditional = not dpc.config.image_embed_dim,
}
unit.name, unit.parts = "unet", parts
return unit
