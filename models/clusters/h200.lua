-- Nodes of eight H200 SXM 141 GB, NVLink inside, a port of 400 Gb/s a GPU, as
-- for H100, between them: --cluster 4x8xh200 has 32.
return {
    name = "h200",
    target = "cuda",
    memory = 141e9,
    -- NVIDIA's, by ml-engineering:compute/accelerator/README.md@744d01e18b.
    peak = { f32 = 67e12, bf16 = 989e12 },
    rates = {
        f32 = 67e12,
        -- 8192 cubed of random numbers, measured on one H200.
        bf16 = 783e12,
        -- A large copy there, both ways.
        bandwidth = 4300e9,
        -- A kernel in a replayed graph (dogacel.github.io 2026-03-14).
        launch = 2e-6,
    },
    levels = {
        -- all_gather of 16 GiB on 8 (ml-engineering:network).
        -- A hop: Ring Simple of NVIDIA/nccl:src/graph/tuning.cc@5067397c26.
        { name = "nvlink", fanout = 8, bandwidth = 362e9,
          latency = 3.4e-6 },
        -- 46-48 GB/s a port of 400 Gb/s (NVIDIA/nccl-tests#290).
        -- A hop: Ring Simple of NVIDIA/nccl:src/graph/tuning.cc@5067397c26.
        { name = "network", fanout = 1, bandwidth = 47e9,
          latency = 14e-6 },
    },
}
