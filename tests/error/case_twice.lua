-- dpc eval --cases %
return {
  { name = "A", part = "p", expect = { loss = 1 } },
  { name = "A", part = "p", expect = { loss = 1 } },
}
