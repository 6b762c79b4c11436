-- dpc eval --cases %
return {
  { name = "A", part = "p", expect = { loss = 1 } },
  { name = "B", part = "p", expect = { loss = 1 },
    inputz = { x = { 2 } } },
}
