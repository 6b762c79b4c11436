-- dpc check
return { entries = { train = function()
    local x = dpc.input("x", {8, 16})
    return { y = x:slice{dim = 1, at = 14, size = 4} }
end } }
