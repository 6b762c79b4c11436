return {
    mesh = { { "pp", 2, "stage" }, { "mb", 2, "time" } },
    leaf = { x = { "mb" } },
    stage = { front = 1, back = 0, ["back.in"] = 1 },
}
