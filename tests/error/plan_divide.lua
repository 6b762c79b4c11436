-- dpc eval --ranks 3
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
