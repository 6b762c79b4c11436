-- dpc eval --plan tests/error/plans/leaf_list.lua
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
