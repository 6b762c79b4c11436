-- dpc eval --plan tests/error/plans/value_absent.lua
return { entries = { train = function()
    local x = dpc.input("x", {8, 16})
    return { y = dpc.scope("net", function() return x:exp() end) }
end } }
