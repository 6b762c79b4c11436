-- The machine that dpc runs on: ranks are processes that share its memory.
-- Cores and memory are asked of it; the numbers are those of shared memory.
return {
    name = "host",
    target = "host",
    march = "native",
    levels = {
        { name = "node", fanout = 1, bandwidth = 5e9, latency = 5e-6 },
    },
}
