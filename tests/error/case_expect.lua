-- dpc eval --cases %
return { model = "models/dalle2/unet.lua",
  { name = "A", part = "unet", expect = { out = {} } } }
