-- dpc verify --ranks 2 --micro 4 --partitioner pipeline
-- All rows meet in the loss, so no backward can begin before all of forward.
return { entries = { train = function()
    local x = dpc.input("x", {8, 16})
    local function layer(name, h)
        return dpc.scope(name, function()
            return h:dot(dpc.param("w", {16, 16}), "ab,bc->ac")
        end)
    end
    local h = layer("back", layer("front", x))
    local loss = h:dot(h, "ab,cb->ac"):exp():move("ac->")
    for i, w in ipairs(dpc.params()) do
        dpc.set(w, w - dpc.grad(loss, { w })[1])
    end
    return { loss = loss }
end } }
