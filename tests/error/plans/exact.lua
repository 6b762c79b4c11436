return {
    mesh = { { "dp", 2 } },
    exact = "yes",
    -- leaves that are not here are whole
    leaf = {
    },
}
