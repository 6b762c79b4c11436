-- dpc check
return { entries = { train = function()
    local w = dpc.param("w", {8, 4})
    dpc.set(w, dpc.input("x", {8, 3}))
end } }
