return {
    mesh = { { "dp", 2 } },
    recompute = "auto:much",
    -- leaves that are not here are whole
    leaf = {
    },
}
