-- dpc check -D act=gulu
local act = dpc.option("act", "gelu", "activation", { "gelu", "silu" })
return { entries = { train = function()
    return { y = dpc.input(act, { 2, 16 }) }
end } }
