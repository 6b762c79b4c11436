-- dpc check
return { entries = { eval = function()
    return { y = dpc.scalar("lr", 0 / 0) * 2 }
end } }
