-- Nodes of four L40S 48 GB on PCIe 4.0 x16, without NVLink, one port of 100
-- Gb/s a node between them.  Of what is no peak nothing measured was at hand.
return {
    name = "l40s",
    target = "cuda",
    memory = 48e9,
    -- NVIDIA's, by ml-engineering:compute/accelerator/README.md@744d01e18b.
    peak = { f32 = 91.6e12, bf16 = 362e12 },
    rates = {
        f32 = 73e12,
        -- 0.8 of the peak, as the other parts reach.
        bf16 = 290e12,
        -- 0.8 of the peak 860, likewise.
        bandwidth = 688e9,
        -- A kernel in a replayed graph (dogacel.github.io 2026-03-14).
        launch = 2e-6,
    },
    levels = {
        -- Twice the 12 of Gen3 x16 (NVIDIA/nccl:src/graph/topo.h@5067397c26).
        -- A hop: Ring Simple of NVIDIA/nccl:src/graph/tuning.cc@5067397c26.
        { name = "pcie", fanout = 4, bandwidth = 24e9,
          latency = 5.7e-6 },
        -- A quarter of the 12 of a port (the same file).
        -- A hop: Ring Simple of NVIDIA/nccl:src/graph/tuning.cc@5067397c26.
        { name = "network", fanout = 1, bandwidth = 3e9,
          latency = 14e-6 },
    },
}
