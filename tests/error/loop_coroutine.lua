-- dpc check --lua-limit 1000000
while true do
    coroutine.resume(coroutine.create(function() while true do end end))
end
