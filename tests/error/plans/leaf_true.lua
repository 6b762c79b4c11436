return {
    mesh = { { "dp", 2 } },
    -- leaves that are not here are whole
    leaf = {
        x = { true },
    },
}
