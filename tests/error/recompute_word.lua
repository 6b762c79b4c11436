-- dpc eval --recompute ful
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
