-- Data parallelism whose ranks keep a part of the weights each, and of what
-- the optimizer knows about them.  Gradients are summed into the parts while
-- backward goes on, weights are gathered while forward does: the bytes of ddp,
-- but both directions have something to hide behind, and moments take a share
-- of the memory.
local share = require "lib.share"

return function(g)
    return share.zero(g, {
        weights = true,
        gather = g.option("gather", "step", "weights are whole for a step, or "
                          .. "for a turn (batch), or for a use: gathered "
                          .. "again for backward"),
        reduce = g.option("reduce", "late", "gradients are summed over ranks "
                          .. "once a step, or in each turn"),
    })
end
