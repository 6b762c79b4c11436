-- Sequence parallelism by heads (Jacobs et al., "DeepSpeed Ulysses", 2023):
-- tokens lie over -P sp=N ranks; for attention they are exchanged for heads,
-- by one all_to_all each of queries, keys and values, and back after it.
local context = require "lib.context"

return function(g) return context.plan(g, context.heads) end
