-- Nodes of eight H100 SXM 80 GB, NVLink inside, a port of 400 Gb/s a GPU
-- between them: --cluster 4x8xh100 has 32.
return {
    name = "h100",
    target = "cuda",
    memory = 80e9,
    -- NVIDIA's, by ml-engineering:compute/accelerator/README.md@744d01e18b.
    peak = { f32 = 67e12, bf16 = 989e12 },
    rates = {
        f32 = 67e12,
        -- 4224 x 2048 x 8192 (gist Chillee/2ec89696db8b7ed1c24461159e325405).
        bf16 = 780e12,
        -- A copy on one GPU, p2pBandwidthLatencyTest (ml-engineering:network).
        bandwidth = 2525e9,
        -- A kernel in a replayed graph (dogacel.github.io 2026-03-14).
        launch = 2e-6,
    },
    levels = {
        -- all_gather on 8 (NVIDIA/nccl-tests#212); sums in the switch: 480.
        -- A hop: Ring Simple of NVIDIA/nccl:src/graph/tuning.cc@5067397c26.
        { name = "nvlink", fanout = 8, bandwidth = 370e9,
          latency = 3.4e-6 },
        -- 46-48 GB/s a port of 400 Gb/s (NVIDIA/nccl-tests#290).
        -- A hop: Ring Simple of NVIDIA/nccl:src/graph/tuning.cc@5067397c26.
        { name = "network", fanout = 1, bandwidth = 47e9,
          latency = 14e-6 },
    },
}
