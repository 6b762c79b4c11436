-- dpc eval --cases %
return {
  { name = "A", part = "p", expect = {},
    inputs = {
      t = { 2, ints = { 3, 7.5 } } } },
}
