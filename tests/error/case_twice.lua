-- dpc eval --cases %
return {
  { name = "A", part = "p", expect = {} },
  { name = "A", part = "p", expect = {} },
}
