return { name = "x", rates = { f23 = 1e12 } }
