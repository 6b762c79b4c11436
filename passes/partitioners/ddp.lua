-- Data parallelism with accumulation: ranks share the batch, and each of them
-- takes its part in g.micro turns.  Weights are whole everywhere; their
-- gradients come out pending over both axes and are summed by the compiler.
return function(g)
    local batch = {}                    -- first dimension of an entry's inputs
    for _, leaf in ipairs(g.leaves) do
        if leaf.op == "input" and leaf.dims[1] and not batch[leaf.entry] then
            batch[leaf.entry] = leaf.dims[1]
        end
    end
    return {
        mesh = { { "dp", g.ranks }, { "mb", g.micro, "time" } },
        leaf = function(leaf)
            if leaf.op == "input" and leaf.dims[1] == batch[leaf.entry] then
                return { "dp/mb" }
            end
            return {}
        end,
    }
end
