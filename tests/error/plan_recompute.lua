-- dpc eval --ranks 2 -P recompute=auto:lots
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
