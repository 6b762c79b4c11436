-- dpc eval --plan tests/error/plans/leaf_turns.lua
return { entries = { train = function()
    return { y = dpc.input("x", {8, 16}):dot(dpc.param("w", {16, 4}),
                                             "ab,bc->ac") }
end } }
