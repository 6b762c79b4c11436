return { mesh = { { "dp", 2 } } }
