-- dpc eval --plan tests/error/plans/leaf_true.lua
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
