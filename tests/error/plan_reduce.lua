-- dpc eval --plan tests/error/plans/reduce.lua
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
