-- dpc check -D bacth=4
local batch = dpc.option("batch", 8, "rows a step")
return { entries = { train = function()
    return { y = dpc.input("x", {batch, 16}) }
end } }
