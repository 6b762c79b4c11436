-- dpc eval --ranks 2 --partitioner zero -P gather=usage
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
