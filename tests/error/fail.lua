-- dpc check
local batch = 7
if batch % 2 == 1 then
    dpc.fail("batch: " .. batch .. " is odd; pairs are wanted")
end
