-- ZeRO-1: ranks keep a part each of moments and averages; weights are whole.
-- Gradients are summed once a step, into the parts.
local share = require "lib.share"

return function(g)
    return share.zero(g, { reduce = "late", gather = "step" })
end
