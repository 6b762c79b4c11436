-- dpc check
return { entries = { train = function()
    local w = dpc.param("w", {8, 4})
    local g = dpc.grad(w * 2, {w})
    dpc.set(w, g[1])
end } }
