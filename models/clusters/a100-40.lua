-- Nodes of eight A100 SXM 40 GB, NVLink inside, a port of 200 Gb/s a GPU
-- between them: --cluster 16x8xa100-40 has 128.
return {
    name = "a100-40",
    target = "cuda",
    memory = 40e9,
    -- NVIDIA's, by ml-engineering:compute/accelerator/README.md@744d01e18b.
    peak = { f32 = 19.5e12, bf16 = 312e12 },
    rates = {
        f32 = 19.5e12,
        -- 8192 x 12288 x 4096, transformer cookbook; a maximum is 271.2.
        bf16 = 241.6e12,
        -- 1555 by the data sheet, of which the 80 GB part copies 0.78.
        bandwidth = 1213e9,
        -- A kernel in a replayed graph (dogacel.github.io 2026-03-14).
        launch = 2e-6,
    },
    levels = {
        -- all_reduce of 1 GB on 8 (VIA-Research/vTrain:trace/a100@f8dda8473a).
        -- A hop: what 2 to 64 MB take longer there, over 14.
        { name = "nvlink", fanout = 8, bandwidth = 229e9,
          latency = 5.3e-6 },
        -- 8 x 200 Gb/s a node (SC21 Megatron paper), at the 0.94 that ports of
        -- 400 reach (NVIDIA/nccl-tests#290).
        -- A hop: Ring Simple of NVIDIA/nccl:src/graph/tuning.cc@5067397c26.
        { name = "network", fanout = 1, bandwidth = 23.5e9,
          latency = 14e-6 },
    },
}
