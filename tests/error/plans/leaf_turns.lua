return {
    mesh = { { "mb", 2, "time" } },
    leaf = { x = { "mb" },
             w = { "", "mb" } },
}
