-- dpc eval --cases %
return {
  { name = "A", part = "p", expect = {},
    inputs = { x = { 2, 3 },
               y = { 2, 0 } } },
}
