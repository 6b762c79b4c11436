return {
    mesh = { { "dp", 2 } },
    bucket = -1,
    -- leaves that are not here are whole
    leaf = {
    },
}
