-- dpc verify --plan tests/error/plans/stage_ring.lua
return { entries = { train = function()
    local x = dpc.input("x", {8, 16})
    local h = dpc.scope("front", function() return x:exp() end)
    h = dpc.scope("back", function() return h:exp() end)
    h = dpc.scope("back", function()
        return dpc.scope("in", function() return h:exp() end)
    end)
    return { y = h:move("ab->") }
end } }
