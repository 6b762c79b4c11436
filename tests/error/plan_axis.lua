-- dpc eval --ranks 2 --partitioner tests/error/plans/axis.lua
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
