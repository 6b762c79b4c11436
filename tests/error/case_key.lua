-- dpc eval --cases %
return {
  { name = "A", part = "p", expect = {} },
  { name = "B", part = "p", expect = {},
    inputz = { x = { 2 } } },
}
