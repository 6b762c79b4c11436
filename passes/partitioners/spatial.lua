-- Spatial parallelism (Dryden et al., IPDPS 2019): the rows of pictures lie
-- over -P sp=N ranks, and convolutions read some rows of the neighbours'.  A
-- picture whose rows do not divide, or leave parts of fewer than -P rows=N, is
-- whole on all of them; what lies between follows.
local share = require "lib.share"
local walk = require "lib.walk"

-- The dimension under the first window of a convolution's picture.
local function rows_of(n)
    for d, letters in ipairs(n.letters and n.letters[1] or {}) do
        if letters:find("+", 1, true) then return d end
    end
end

return function(g)
    local sp = share.group(g, "sp", g.ranks, "ranks that share the rows")
    local least = g.option("rows", 2, "rows that a part has at least")
    local value, most = {}, 0
    for _, entry in ipairs(sp > 1 and g.entries or {}) do
        local e = walk.survey(entry, g.nodes(entry))
        for _, n in ipairs(e.nodes) do
            local d, x = rows_of(n), n.inputs[1]
            if d and walk.is_data(e, x) then
                local rows = e.nodes[x].dims[d]
                local parts = rows % sp == 0 and rows // sp >= least
                local lie = { "*", "*", "*", "*" }
                lie[d] = parts and "sp" or ""
                value[walk.name(e, x)] = lie
                most = math.max(most, rows, parts and math.huge or 0)
            end
        end
    end
    if sp > 1 and most < math.huge then
        error(("no convolution's picture has rows for %d ranks, %d a part; "
               .. "the most are %d"):format(sp, least, most), 2)
    end
    return {
        mesh = { { "dp", g.ranks // sp }, { "sp", sp },
                 { "mb", g.micro, "time" } },
        value = value,
        leaf = function(leaf) return leaf.batch and { "dp/mb" } or {} end,
    }
end
