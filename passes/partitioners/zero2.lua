-- ZeRO-2: as zero1, but gradients are summed in each turn, so that between
-- turns a rank holds parts of them only.
local share = require "lib.share"

return function(g)
    return share.zero(g, { reduce = "each", gather = "step" })
end
