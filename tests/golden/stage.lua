-- dpc print --entry train --cluster 1x2xa100-80 --ranks 2 --micro 2 --partitioner pipeline --role=1 --after=cut --short
return { entries = { train = function()
    local h = dpc.input("x", {8, 4})
    for i = 1, 2 do
        h = dpc.scope("layer" .. i, function()
            return h:dot(dpc.param("w", {4, 4}), "ab,bc->ac")
        end)
    end
    local loss = (h * h):move("ab->")
    for _, w in ipairs(dpc.params()) do
        dpc.set(w, w - dpc.grad(loss, { w })[1])
    end
    return { loss = loss }
end } }
