-- dpc verify --plan tests/error/plans/stage_parts.lua
-- In "back" rows are whole over "dp": a turn's rows of that are of all turns.
return { entries = { train = function()
    local x = dpc.input("x", {8, 4})
    local function layer(name, h)
        return dpc.scope(name, function()
            return h:dot(dpc.param("w", {4, 4}), "ab,bc->ac")
        end)
    end
    local h = layer("back", layer("front", x))
    h = layer("last", dpc.scope("back", function() return h:exp() end))
    local loss = h:exp():move("ac->")
    for i, w in ipairs(dpc.params()) do
        dpc.set(w, w - dpc.grad(loss, { w })[1])
    end
    return { loss = loss }
end } }
