-- dpc check
local t
return { entries = { train = function()
    return t.x
end } }
