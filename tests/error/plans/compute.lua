return {
    mesh = { { "dp", 2 } },
    compute = "f16",
    -- leaves that are not here are whole
    leaf = {
    },
}
