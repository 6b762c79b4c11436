-- dpc check
return { entries = { train = function()
    local x = dpc.input("x", {8, 16})
    return { y = x:move("b (h w) -> b h w") }
end } }
