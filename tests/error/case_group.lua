-- dpc eval --cases %
return { model = "models/dalle2/parts.lua",
  { name = "A", part = "resize",
    inputs = { image = { 1, 3, 4, 4 } }, call = { size = 8 },
    expect = { out = { sum = 0 },
               grad = { image = 1 } } } }
