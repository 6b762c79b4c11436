-- dpc check
return { entries = { train = function()
    local x = dpc.param("x", {8, 16})
    local y = dpc.param("x", {8, 17})
    return { y = x }
end } }
