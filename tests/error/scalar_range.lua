-- dpc compile
return { entries = { train = function()
    local x = dpc.input("x", {8, 16})
    return { y = x * dpc.scalar("share", 2, "of it", { 0, 1 }) }
end } }
