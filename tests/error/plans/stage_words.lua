return {
    mesh = { { "dp", 2 } },
    leaf = {},
    order = "1f1b",
}
