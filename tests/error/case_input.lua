-- dpc eval --cases %
return { model = "models/dalle2/parts.lua",
  { name = "A", part = "lowres",
    inputs = { image = { 1, 3, 4, 4 }, blur_con = {} },
    call = { downsample_image_size = 2, target_image_size = 4 },
    expect = { out = { sum = 0 } } } }
