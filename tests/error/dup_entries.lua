-- dpc check
return { entries = {
    eval = function() return { y = dpc.input("x", {8, 16}) } end,
    train = function() return { y = dpc.input("x", {4, 16}) } end,
} }
