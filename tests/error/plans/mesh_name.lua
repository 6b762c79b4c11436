return {
    mesh = { { "DP", 2 } },
    -- leaves that are not here are whole
    leaf = {
    },
}
