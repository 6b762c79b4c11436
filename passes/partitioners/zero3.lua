-- ZeRO-3 (FSDP): ranks keep parts of everything; weights are gathered for
-- forward and again for backward, in every turn.
local share = require "lib.share"

return function(g)
    return share.zero(g, { weights = true, reduce = "each", gather = "use" })
end
