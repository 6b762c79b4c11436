-- dpc eval --cases %
return {
  { name = "A", part = "p", expect = {},
    draws = "rand" },
}
