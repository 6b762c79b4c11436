return {
    mesh = { { "pp", 2, "stage" }, { "mb", 2, "time" } },
    leaf = { x = { "mb" } },
    stage = { front = 0, back = 1 },
    order = { "forward.0.0",
              "forward.1.1", "forward.1.0", "forward.0.1" },
}
