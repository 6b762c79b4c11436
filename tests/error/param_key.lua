-- dpc check
return { entries = { train = function()
    return { y = dpc.param("x", {8, 16}, {frozn = true}) }
end } }
