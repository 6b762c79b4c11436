-- dpc compile --cluster tests/error/clusters/negative.lua
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}) }
end } }
