-- dpc check -q
-- 2 batches and 3 heads of 4 queries by 5 keys of 6 numbers, values of 7:
-- 2 x 3 x (2 x 4 x 5 x 6 + 2 x 4 x 5 x 7) are 3120
return { entries = { score = function()
    local q = dpc.input("q", {2, 4, 3, 6})
    local k = dpc.input("k", {2, 5, 3, 6})
    local v = dpc.input("v", {2, 5, 3, 7})
    local mask = dpc.input("mask", {2, 5})
    return { y = q:attn(k, v, mask, "bqhd,bshd,bshe,bs->bqhe") }
end } }
