-- dpc check
return { entries = { train = function()
    local w = dpc.param("w", {8, 4}, {init = function(dims)
        return dpc.random("normal", {dims[1], 3})
    end})
    return { y = w }
end } }
