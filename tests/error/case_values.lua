-- dpc eval --cases %
return {
  model = "tests/models/parts.lua",
  { name = "part", part = "leyer", expect = { loss = 1 } },
  { name = "out", part = "layer", inputs = { x = { 2, 4 } },
    expect = { oat = { sum = 1 } } },
  { name = "param", part = "layer", inputs = { x = { 2, 4 } },
    expect = { mse = .3268656186, grads = { ["net.weigth"] = 1 } } },
  { name = "dims", part = "layer", inputs = { x = { 2, 5 } }, expect = { loss = 1 } },
  { name = "tensor", part = "layer", inputs = { x = { 2, 4 } },
    expect = { out = 1 } },
  { name = "leaf", part = "layer", inputs = { x = { 2, 4 } },
    leaves = { ["net.b"] = { scale = 2 } }, expect = { mse = 1 } },
}
