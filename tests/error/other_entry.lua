-- dpc check
local kept
return { entries = {
    eval = function() kept = dpc.input("x", {8}); return { y = kept } end,
    train = function() return { y = kept } end,
} }
