return {
    mesh = { { "pp", 2, "stage" }, { "mb", 2, "time" } },
    leaf = { x = { "mb" } },
    stage = 2,
}
