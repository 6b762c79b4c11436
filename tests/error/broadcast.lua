-- dpc check
return { entries = { train = function()
    local x, y = dpc.input("x", {8, 16}), dpc.input("y", {8, 3})
    return { y = x + y }
end } }
