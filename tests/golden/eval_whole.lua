-- dpc eval --field
local width = dpc.option("width", 8, "of the layer")
return { entries = {
    train = function()
        local x, y = dpc.input("x", {4, 3}), dpc.input("y", {4, width})
        local loss = dpc.scope("net", function()
            local w = dpc.param("w", {3, width}, {init = function(dims)
                return dpc.random("normal", dims) * 0.5
            end})
            local b = dpc.param("b", {width})
            local d = x:dot(w, "bk,kn->bn") + b - y
            return (d * d):move("b n ->") / (4 * width)
        end)
        local lr = dpc.scalar("lr", 0.1, "learning rate")
        local params = dpc.params()
        for i, g in ipairs(dpc.grad(loss, params)) do
            dpc.set(params[i], params[i] - lr * g)
        end
        return { loss = loss }
    end,
} }
