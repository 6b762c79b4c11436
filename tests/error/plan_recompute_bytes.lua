-- dpc eval --plan tests/error/plans/recompute_bytes.lua
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
