-- dpc check
return { entries = { train = function()
    error({})
end } }
