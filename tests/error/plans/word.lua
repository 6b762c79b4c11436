return {
    mesh = { { "dp", 2 } },
    buckets = 1,
    -- leaves that are not here are whole
    leaf = {
    },
}
