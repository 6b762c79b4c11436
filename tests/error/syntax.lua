-- dpc check
local x = = 3
