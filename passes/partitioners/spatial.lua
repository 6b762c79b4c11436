-- Spatial parallelism (Dryden et al., IPDPS 2019): the rows of pictures lie
-- over -P sp=N ranks, and convolutions read some rows of other parts.  Rows need
-- not divide; a picture that leaves parts of fewer than -P rows=N is whole on all
-- of them; what lies between follows.
local share = require "lib.share"
local walk = require "lib.walk"

-- The dimension under the first window of a convolution's picture.
local function rows_of(n)
    for d, letters in ipairs(n.letters and n.letters[1] or {}) do
        if letters:find("+", 1, true) then return d end
    end
end

local function refuse(g, most, sp, least)
    local near = most // least            -- parts that the highest gives
    g.refuse(("sp=%d: no convolution's picture has rows for so many parts of "
              .. "%d or more; the most rows are %d; %s"):format(
        sp, least, most, near < 2 and "no number of parts works"
        or ("the nearest plan that works: --ranks %d -P sp=%d"):format(
            g.ranks // sp * near, near)))
end

return function(g)
    local sp = share.group(g, "sp", g.ranks, "ranks that share the rows")
    local least = g.option("rows", 1, "rows that a part has at least")
    local value, most, split = {}, 0, false
    if least < 1 then
        error(("rows is %d; a part has one row or more"):format(least), 2)
    end
    for _, entry in ipairs(sp > 1 and g.entries or {}) do
        local e = walk.survey(entry, g.nodes(entry))
        for _, n in ipairs(e.nodes) do
            local d, x = rows_of(n), n.inputs[1]
            if d and walk.is_data(e, x) then
                local rows = e.nodes[x].dims[d]
                local parts = rows // sp >= least
                local lie = { "*", "*", "*", "*" }
                lie[d] = parts and "sp" or ""
                value[walk.name(e, x)] = lie
                most, split = math.max(most, rows), split or parts
            end
        end
    end
    if sp > 1 and not split then refuse(g, most, sp, least) end
    return {
        mesh = { { "dp", g.ranks // sp }, { "sp", sp },
                 { "mb", g.micro, "time" } },
        value = value,
        leaf = function(leaf) return leaf.batch and { "dp/mb" } or {} end,
    }
end
