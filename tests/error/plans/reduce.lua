return {
    mesh = { { "dp", 2 } },
    reduce = "soon",
    -- leaves that are not here are whole
    leaf = {
    },
}
