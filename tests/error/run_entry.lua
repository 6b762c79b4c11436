-- dpc check
return {
    entries = { eval = function() return { y = dpc.input("x", {8}) } end },
    runs = { sample = { "evla" } },
}
