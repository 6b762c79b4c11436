return {
    levels = {
        { name = "nvlink", bandwidth = 229e9 },
        { name = "network", bandwidth = 0 },
    },
}
