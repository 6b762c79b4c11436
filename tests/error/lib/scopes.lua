-- Two scopes in a row.
return { entries = { train = function()
    local x = dpc.input("x", {8, 16})
    local h = dpc.scope("front", function() return x:exp() end)
    h = dpc.scope("back", function() return h:exp() end)
    return { y = h:move("ab->") }
end } }
