-- dpc compile --cluster tests/error/clusters/zero.lua
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
