-- dpc check
return { entries = { train = function()
    local x = dpc.input("x", { 4, 3, 8, 8 })
    return { y = x:conv(dpc.param("w", { 4, 3, 3, 3 }), { stride = 0 }) }
end } }
