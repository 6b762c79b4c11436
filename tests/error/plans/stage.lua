return {
    mesh = { { "dp", 2 }, { "pp", 2, "stage" } },
    leaf = { x = { "dp" } },
}
