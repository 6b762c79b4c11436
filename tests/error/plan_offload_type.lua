-- dpc eval --plan tests/error/plans/offload_type.lua
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
