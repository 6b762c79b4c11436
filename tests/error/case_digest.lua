-- dpc eval --cases %
return {
  { name = "A", part = "p",
    expect = { out = { sum = 1, mean = 2 } } },
}
