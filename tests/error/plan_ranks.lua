-- dpc eval --ranks 4 --plan tests/error/plans/ranks.lua
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
