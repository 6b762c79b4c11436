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

-- Numbers of equal parts, of `least` rows or more, that some picture gives.
local function counts_of(pictures, least)
    local works, most = {}, 0
    for rows in pairs(pictures) do most = math.max(most, rows) end
    for n = 2, most do
        for rows in pairs(pictures) do
            if rows % n == 0 and rows // n >= least then
                works[#works + 1] = n
                break
            end
        end
    end
    return works, most
end

local function refuse(g, pictures, sp, least)
    local works, most = counts_of(pictures, least)
    local near = works[1]
    for _, n in ipairs(works) do
        if math.abs(n - sp) < math.abs(near - sp) then near = n end
    end
    g.refuse(("sp=%d: no convolution's picture has rows for so many equal "
              .. "parts of %d or more; the most rows are %d; %s"):format(
        sp, least, most, not near and "no number of parts works"
        or ("%s work; the nearest plan that works: --ranks %d -P sp=%d"):format(
            table.concat(works, ", "), g.ranks // sp * near, near)))
end

return function(g)
    local sp = share.group(g, "sp", g.ranks, "ranks that share the rows")
    local least = g.option("rows", 2, "rows that a part has at least")
    local value, pictures, split = {}, {}, false
    if least < 1 then
        error(("rows is %d; a part has one row or more"):format(least), 2)
    end
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
                pictures[rows], split = true, split or parts
            end
        end
    end
    if sp > 1 and not split then refuse(g, pictures, sp, least) end
    return {
        mesh = { { "dp", g.ranks // sp }, { "sp", sp },
                 { "mb", g.micro, "time" } },
        value = value,
        leaf = function(leaf) return leaf.batch and { "dp/mb" } or {} end,
    }
end
