return {
    mesh = { { "dp", 2 }, { "mb", 2, "time" } },
    leaf = {},
    value = { net = { "mb" } },
}
