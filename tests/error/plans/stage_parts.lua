return {
    mesh = { { "dp", 2 }, { "mb", 2, "time" }, { "pp", 3, "stage" } },
    leaf = { x = { "dp/mb" } },
    value = { back = { "", "dp" } },
    stage = { front = 0, back = 1, last = 2 },
    order = "1f1b",
}
