-- Context parallelism by keys and values (Dubey et al., "Llama 3", 2024,
-- 3.3.2): tokens lie over -P sp=N ranks, and every rank sees all keys and
-- values, which are joined before each attention; heads need not divide.
local context = require "lib.context"

return function(g) return context.plan(g, context.gather) end
