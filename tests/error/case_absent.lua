-- dpc eval --cases % --case B
return {
  { name = "A", part = "p", expect = { loss = 1 } },
}
