-- dpc check
return { entries = { train = function()
    local x = dpc.input("x", {8, 16})
    local w = dpc.param("w", {17, 4})
    return { y = x:dot(w, "bk,kn->bn") }
end } }
