-- dpc check --config tests/error/lib/wrong.json %
return { entries = { train = function() return { y = dpc.const(1) } end } }
