-- dpc eval --cases %
return {
  { name = "A", expect = { loss = 1 } },
}
