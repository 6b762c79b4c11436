-- dpc check
local layers = require "lib.layers"
return { entries = { train = function()
    local x = dpc.input("x", {8, 16})
    return { y = layers.tied(x) }
end } }
