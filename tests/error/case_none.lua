-- dpc eval --cases %
local function case(name, more)
  return { name = name, part = "resize", inputs = { image = { 1, 1, 2, 2 } },
           call = { size = 2, nearest = true }, expect = more }
end
return { model = "models/dalle2/parts.lua",
  { name = "null", part = "lowres", options = { input_image_range = dpc.null },
    inputs = { image = { 1, 1, 4, 4 } },
    call = { downsample_image_size = 2, target_image_size = 4 },
    expect = { out = { last = 99 } } },
  case("absent", { out = { first = { 1, 2, 3, 4, 5 } } }),
  { name = "lost", part = "resize", call = { size = 2 }, expect = { out = 1 } },
  { name = "aim", part = "clip_adapter", inputs = { text = { 2, 77, ints = 9 } },
    call = { make = "openai" }, expect = { gradL2 = 1 },
    options = { embed_dim = 4, image_resolution = 8, vision_layers = 1,
                vision_width = 64, vision_patch_size = 4, transformer_width = 8,
                transformer_heads = 2, transformer_layers = 1, vocab_size = 10,
                eos_id = 9 } },
}
