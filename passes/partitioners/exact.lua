-- The batch in eight fixed blocks, whatever the number of ranks: three axes of
-- two, the major ones over ranks, the others turns.  With `exact` the compiler
-- finishes a sum one axis at a time, minor first: a binary tree over the same
-- eight blocks, so that 1, 2, 4 and 8 ranks give the same bits.
return function(g)
    local ranks = g.ranks
    if ranks ~= 1 and ranks ~= 2 and ranks ~= 4 and ranks ~= 8 then
        error("exact: 1, 2, 4 or 8 ranks share eight blocks, not " .. ranks)
    end
    local mesh, left = {}, ranks
    for i, name in ipairs { "a", "b", "c" } do
        mesh[i] = left > 1 and { name, 2 } or { name, 2, "time" }
        left = left // 2
    end
    return {
        mesh = mesh,
        exact = true,
        leaf = function(leaf) return leaf.batch and { "a/b/c" } or {} end,
    }
end
