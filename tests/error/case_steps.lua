-- dpc eval --cases %
return {
  { name = "A", part = "p", steps = 1,
    expect = { steps = { { loss = 1 }, { loss = 2 } } } },
}
