-- dpc check -D batch=0
local batch = dpc.option("batch", 8, "rows a step", 1)
return { entries = { train = function()
    return { y = dpc.input("x", { batch, 16 }) }
end } }
