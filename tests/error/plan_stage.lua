-- dpc compile --plan tests/error/plans/stage.lua
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}):move("ab->") }
end } }
