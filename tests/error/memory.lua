-- dpc check --lua-memory 16
local t = {}
for i = 1, 1e9 do
    pcall(function() t[i] = ("x"):rep(1000) .. i end)
end
