return {
    mesh = { { "pp", 2, "stage" }, { "mb", 2, "time" } },
    leaf = { x = { "mb" } },
    stage = { front = 0, back = 2 },
}
