-- dpc check
return { entries = { train = function()
    local x = dpc.input("x", {8, 16})
    return { y = x:slice{dimm = 1, at = 0, size = 4} }
end } }
