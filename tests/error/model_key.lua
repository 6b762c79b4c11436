-- dpc check
return { nam = "x", entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
