-- Ring attention (Liu, Zaharia, Abbeel, 2023): tokens lie over -P sp=N ranks.
-- Of an attention in one piece (`attn`) keys and values come round, a rank's
-- part a turn, while the part before it is worked on: no rank holds more than
-- three.  Of others they are joined before it (Dubey et al., "Llama 3", 2024,
-- 3.3.2), and so everywhere with -P whole=true; heads need not divide.
local context = require "lib.context"

return function(g)
    local whole = g.option("whole", false, "join keys and values")
    return context.plan(g, whole and context.gather or context.ring, not whole)
end
