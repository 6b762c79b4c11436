return {
    mesh = {},
    leaf = {},
    offload = { "states" },
}
