-- dpc check --lua-limit 1000000
while true do
    pcall(function() while true do end end)
end
