-- Hybrid sharding (Zhao et al., "PyTorch FSDP", VLDB 2023, 3.2.2): parts lie
-- within a node, where they are gathered quickly; nodes hold the same, and
-- add up the parts of their gradients.
local share = require "lib.share"

return function(g)
    local nodes = share.group(g, "nodes", g.ranks > 1 and g.ranks % 2 == 0
                              and 2 or 1, "nodes; each holds all parts")
    return share.zero(g, {
        nodes = nodes, weights = true,
        gather = g.option("gather", "use", "weights are whole for a step, a "
                          .. "turn (batch) or a use"),
        reduce = g.option("reduce", "late", "gradients are summed over ranks "
                          .. "once a step, or in each turn"),
    })
end
