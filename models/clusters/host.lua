-- The machine that dpc runs on: ranks are processes that share its memory.
-- Cores and memory are asked of it; the numbers are those of shared memory, and
-- `dpc cluster probe` measures them.
return {
    name = "host",
    target = "host",
    march = "native",
    levels = {
        { name = "node", bandwidth = 5e9, latency = 5e-6 },
    },
}
