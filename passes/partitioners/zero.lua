-- Data parallelism whose ranks keep a part of the weights each, and of what
-- the optimizer knows about them (Rajbhandari et al., "ZeRO", SC 2020).
-- Gradients are summed into the parts while backward goes on, weights are
-- gathered while forward does: the bytes of ddp, but both directions have
-- something to hide behind, and moments take a share of the memory.
local function volume(dims)
    local n = 1
    for _, d in ipairs(dims) do n = n * d end
    return n
end

return function(g)
    local least = g.option("least", 1024, "numbers of a part worth a transfer")
    local parted = {}
    for _, leaf in ipairs(g.leaves) do
        if leaf.trainable and volume(leaf.dims) >= least * g.ranks then
            for d, size in ipairs(leaf.dims) do
                if size % g.ranks == 0 then
                    parted[leaf.name] = d
                    break
                end
            end
        end
    end
    -- Moments and averages lie as their weight: "ema.NAME" as NAME.
    local weight = {}
    for _, leaf in ipairs(g.leaves) do weight[leaf.name] = leaf.op == "param" end
    local function dimension(name)
        while name and not weight[name] do name = name:match("%.(.*)$") end
        return name and parted[name]
    end
    return {
        gather = g.option("gather", "step", "weights are whole for a step, or "
                          .. "for a use: gathered again for backward"),
        mesh = { { "dp", g.ranks }, { "mb", g.micro, "time" } },
        leaf = function(leaf)
            if leaf.op == "input" then
                return leaf.batch and { "dp/mb" } or {}
            end
            local at, split = dimension(leaf.name), {}
            for d = 1, at or 0 do split[d] = d == at and "dp" or "" end
            return split
        end,
    }
end
