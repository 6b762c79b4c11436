-- Data parallelism with accumulation: ranks share the batch, and each of them
-- takes its part in g.micro turns.  Weights are whole everywhere; their
-- gradients come out pending over both axes and are summed by the compiler.
return function(g)
    return {
        mesh = { { "dp", g.ranks }, { "mb", g.micro, "time" } },
        leaf = function(leaf) return leaf.batch and { "dp/mb" } or {} end,
    }
end
