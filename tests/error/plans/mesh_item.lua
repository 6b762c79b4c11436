return {
    mesh = { "dp" },
    -- leaves that are not here are whole
    leaf = {
    },
}
