-- dpc eval --offload stats --ranks 2
return { entries = { train = function()
    local w = dpc.param("net.w", {8, 16})
    return { y = dpc.input("x", {8, 16}) + w }
end } }
