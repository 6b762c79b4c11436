return {
    mesh = { { "pp", 2, "stage" }, { "qq", 2, "stage" } },
    leaf = {},
    stage = { front = 0, back = 1 },
}
