return {
    mesh = { { "dp", 0 } },
    -- leaves that are not here are whole
    leaf = {
    },
}
