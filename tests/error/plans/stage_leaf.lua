return {
    mesh = { { "pp", 2, "stage" } },
    leaf = { x = { "pp" } },
    stage = { front = 0, back = 1 },
}
