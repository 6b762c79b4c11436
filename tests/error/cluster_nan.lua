-- dpc compile --cluster tests/error/clusters/nan.lua
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
