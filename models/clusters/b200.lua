-- Nodes of eight B200 SXM 180 GB, NVLink inside, a port of 400 Gb/s a GPU, as
-- for H100, between them: --cluster 4x8xb200 has 32.
return {
    name = "b200",
    target = "cuda",
    memory = 180e9,
    -- NVIDIA's, by ml-engineering:compute/accelerator/README.md@744d01e18b.
    peak = { f32 = 80e12, bf16 = 2250e12 },
    rates = {
        f32 = 80e12,
        -- 1792 x 16128 x 3072, a maximum (ml-engineering:compute/accelerator).
        bf16 = 1745e12,
        -- A copy on one GPU, p2pBandwidthLatencyTest (ml-engineering:network).
        bandwidth = 5780e9,
        -- A kernel in a replayed graph (dogacel.github.io 2026-03-14).
        launch = 2e-6,
    },
    levels = {
        -- all_reduce of 2 GiB on 8, nccl 2.27.7 (ml-engineering:network).
        -- A hop: Ring Simple of NVIDIA/nccl:src/graph/tuning.cc@5067397c26.
        { name = "nvlink", fanout = 8, bandwidth = 735e9,
          latency = 3.4e-6 },
        -- 46-48 GB/s a port of 400 Gb/s (NVIDIA/nccl-tests#290).
        -- A hop: Ring Simple of NVIDIA/nccl:src/graph/tuning.cc@5067397c26.
        { name = "network", fanout = 1, bandwidth = 47e9,
          latency = 14e-6 },
    },
}
