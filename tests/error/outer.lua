-- dpc check
return { entries = { train = function()
    local x = dpc.input("x", {10000000})
    return { y = x:dot(x, "a,b->ab") }
end } }
