-- dpc check --config tests/error/lib/comma.json %
return { entries = { train = function()
  return { y = dpc.const(dpc.config.dim) }
end } }
