-- dpc check
return { entries = { eval = function()
    local x = dpc.input("x", { 1, 1, 5, 5 })
    return { y = x:conv(dpc.const(1, { 1, 1, 3, 3 }), { pad = -1 }) }
end } }
