-- dpc eval --cases %
return {
  { name = "A", part = "p", expect = { loss = 1 },
    expect_f32 = { mse = 2 } },
}
