-- dpc check
return { entries = { train = function()
    return { y = dpc.scalar("save_every", 1) * dpc.scalar("steps", 1) }
end } }
