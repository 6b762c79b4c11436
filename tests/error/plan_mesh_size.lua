-- dpc eval --plan tests/error/plans/mesh_size.lua
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
