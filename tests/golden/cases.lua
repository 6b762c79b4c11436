-- dpc eval --cases %
return {
  model = "tests/models/parts.lua",
  -- Fact: h("x") and the first three floats of f("x").
  { name = "echo", part = "echo",
    inputs = {
      x = { 2, 3 }, t = { 2, ints = { 3, 7 } }, u = { 4, fill = "x", ints = 50 },
      z = { 2, 3, fill = "x", scale = 4, add = 1, zero = { { 1 }, { 0, 2 } } },
      unit = { 1, 3, fill = "x", l2norm = true },
      v = { 2, 2, values = { { 1, -2 }, { 3, 0.5 } } },
    },
    expect = {
      x = { first = { -.6502655744552612, .6782562732696533, .1923146247 } },
      t = { sum = 10, abs = 5, first = { 3, 7 }, last = 7 },
      u = { first = { 17, 47, 25 } },
      z = { first = { -1.6010622978, 3.7130250931, 0, 0, 0 }, last = 0 },
      unit = { first = { -.6779996501, .7071841630, .2005169172 } },
      v = { sum = 2.5, abs = 1.625 },
    } },
  -- Numbers of tests/parity/reference would be PyTorch's; these are its too.
  { name = "wrong", part = "layer", inputs = { x = { 2, 4 } },
    call = { scale = 2 },
    expect = { params = 19, out = { sum = "1.50" } } },
  { name = "walk", part = "walk", inputs = { x = { 2 } }, steps = 2,
    draws = "randn",
    expect = { out = { sum = 4.87377274 }, steps = { { loss = 4.3533228 } },
               leaves = { ["walk.at"] = { sum = 4.87377274 } } } },
  { name = "descent", part = "descent", steps = 3,
    inputs = { x = { 2, 3, fill = "img<s>" } },
    expect = {
      steps = { { loss = .3091797756, step = 0, norm = { params = .8776698524 } },
                { loss = .3369400142, step = 1 } },
      loss = .4275425437,
    } },
  { name = "later", part = "none", skip = "not built", expect = {} },
  { name = "elsewhere", part = "p", model = "models/none.lua", expect = { loss = 1 } },
  { name = "typo", part = "layr", expect = { loss = 1 } },
  { name = "option", part = "layer", inputs = { x = { 2, 4 } },
    options = {
      dimm = 3 },
    expect = { loss = 1 } },
  { name = "cancels", part = "cancels", inputs = { x = { 2, 3 } },
    expect = { out = { sum = 0.0145162344 } } },
}
