-- Two scopes in a row, a step of training.
return { entries = { train = function()
    local x = dpc.input("x", {8, 16})
    local h = dpc.scope("front", function()
        return x:dot(dpc.param("w", {16, 16}), "ab,bc->ac")
    end)
    h = dpc.scope("back", function() return h:exp() end)
    local loss = h:move("ab->")
    local w = dpc.params()[1]
    dpc.set(w, w - dpc.grad(loss, { w })[1])
    return { loss = loss }
end } }
