-- Tensor parallelism (Shoeybi et al., "Megatron-LM", 2019, section 3): of two
-- contractions in a row the first weight is split by columns, the second by
-- rows, so that what lies between never leaves its rank and one sum a pair is
-- owed.  Heads, hidden units, channels: whatever letter runs from the one to
-- the other.  -P tp=N ranks share a copy of the model; the rest is data
-- parallel.
--
-- -P sp=true: between the pairs tokens lie over the same ranks (Korthikanti et
-- al., 2022): the sum that a pair owes becomes parts of the tokens, which are
-- joined where the next pair begins; norms and residuals hold a part each.
--
-- -P ring=true: what such a join or sum stands beside, a product, goes part by
-- part: while one rank's tokens are multiplied the next rank's are on their way
-- (Wang et al., 2023).
--
-- -P zero=3: of what a rank holds, ranks of dp keep a part each, weights too,
-- as zero3 does; -P zero=1 parts only what the optimizer knows.
--
-- Each entry is walked once (lib/walk.lua).  A product begins a pair only when
-- every way from its columns on leads to rows: not past a norm, not into a
-- residual stream.

local share = require "lib.share"
local walk = require "lib.walk"
local dimension, major, weight_of = walk.dimension, walk.major, walk.weight_of

-- Does every way of dimension d of node i lead to rows?  `met` holds the
-- nodes on the way, so that a sum of two of them is known from a residual.
-- Uneven parts are those of a letter by itself.
local function leads_to_rows(e, i, d, met, even)
    met[i] = true
    local users = e.users[i] or {}
    for u = 1, #users, 2 do
        local user, k = users[u], users[u + 1]
        local n = e.nodes[user]
        local c = n.letters and n.op ~= "grad" and major(n.letters[k], d)
        if not c or not (even or #n.letters[k][d] == 1) then return false end
        local w, o = weight_of(e, n), dimension(n.out, c)
        local rows = w and dimension(n.letters[w], c)
        if not rows and not o then return false end
        for _, r in ipairs(n.op == "add" and n.inputs or {}) do
            if not (met[r] or e.free[r] or e.weight[r]) then return false end
        end
        if not rows and not met[user]
            and not leads_to_rows(e, user, o, met, even) then
            return false
        end
    end
    return e.users[i] ~= nil
end

return function(g)
    local tp = share.group(g, "tp", g.ranks,
                           "ranks that share a copy of the model")
    local least = g.option("least", 1024, "numbers of a weight worth a split")
    local sp = g.option("sp", false, "tokens lie over tp between the pairs")
    local ring = g.option("ring", false,
                          "with sp: products begin as tokens come round")
    local zero = g.option("zero", 0, "1, 3: what dp keeps in parts, as zeroN")
    local split, value = {}, {}         -- leaf -> dimension; constraints

    -- Tokens, dimension d, of node i: in parts, joined, or coming round.
    local function lie(e, i, d, forward, backward)
        local key = walk.name(e, i)
        local v = value[key] or { grad = {} }
        local function say(list, word)
            for k = 1, d do list[k] = list[k] or "*" end
            list[d] = word == "*" and list[d] or word
        end
        say(v, forward)
        say(v.grad, backward)
        value[key] = v
    end

    -- Product i of x and a weight begins a pair, or ends it.
    local function pair(e, i, x, xs, begins)
        local n = e.nodes[i]
        local of = begins and xs or n.out
        local c = sp and #of >= 3 and n.op == "dot" and major(of, 2)
        local at, to = c and dimension(xs, c), c and dimension(n.out, c)
        if not (at and to) then return end
        if begins then
            lie(e, x, at, ring and "tp'" or "", "tp")
            if ring then lie(e, i, to, "*", "tp'") end
        else
            lie(e, i, to, "tp", ring and "tp'" or "")
            if ring then lie(e, x, at, "tp'", "*") end
        end
    end

    local function take(w, d)
        if w.map[d] and not split[w.name] then split[w.name] = w.map[d] end
        return split[w.name] == w.map[d]
    end

    -- A product with a weight: rows where the data comes in parts; else
    -- columns, where that begins a pair.
    local function product(e, i, n, w)
        local leaf, node = e.weight[n.inputs[w]], e.nodes[n.inputs[w]]
        local xs, ws = n.letters[3 - w], n.letters[w]
        local at = e.cut[n.inputs[3 - w]]
        local c = at and major(xs, at)
        if c and dimension(ws, c) then
            if take(leaf, dimension(ws, c)) then
                pair(e, i, n.inputs[3 - w], xs, false)
            end
            return
        end
        if at then return c and dimension(n.out, c) end
        for d in ipairs(share.volume(node.dims) >= least and ws or {}) do
            c = major(ws, d)
            local o = c and not dimension(xs, c) and dimension(n.out, c)
            if o and node.dims[d] >= tp
                and leads_to_rows(e, i, o, {}, node.dims[d] % tp == 0)
                and take(leaf, d) then
                pair(e, i, n.inputs[3 - w], xs, true)
                return o
            end
        end
    end

    -- Anything else keeps the parts of an operand whose letter it keeps, and
    -- weights beside it lie alike.
    local function carry(e, n)
        local c, at
        for k, r in ipairs(n.inputs) do
            c = c or e.cut[r] and major(n.letters[k], e.cut[r])
        end
        at = c and dimension(n.out, c)
        if not at or n.dims[at] % tp ~= 0 and #n.out[at] > 1 then return end
        for k, r in ipairs(n.inputs) do
            local d = e.weight[r] and dimension(n.letters[k], c)
            if d then take(e.weight[r], d) end
        end
        return at
    end

    for _, entry in ipairs(tp > 1 and g.entries or {}) do
        local e = walk.survey(entry, g.nodes(entry))
        for i, n in ipairs(entry ~= "init" and e.nodes or {}) do
            local w = weight_of(e, n)
            if w then
                e.cut[i] = product(e, i, n, w)
            elseif n.letters and n.op ~= "grad" and not e.weight[i] then
                e.cut[i] = carry(e, n)
            end
        end
    end
    local owner, dp = share.owner(g), g.ranks // tp

    local function held(leaf)           -- a rank's extents
        local dims = table.move(leaf.dims, 1, #leaf.dims, 1, {})
        local d = split[leaf.name]
        if d then dims[d] = dims[d] // tp end
        return dims
    end

    if zero ~= 0 and zero ~= 1 and zero ~= 3 then
        error(("zero is %s: 0, 1 or 3"):format(zero), 2)
    end
    local parted = zero > 0 and share.parted(g, dp, zero == 3, held) or {}
    return {
        reduce = zero == 3 and "each" or nil,
        gather = zero == 3 and "use" or nil,
        mesh = { { "dp", dp }, { "tp", tp }, { "mb", g.micro, "time" },
                 sp and ring and { "tp'", tp, "time" } or nil },
        value = value,
        leaf = function(leaf)
            if leaf.op == "input" then
                return leaf.batch and { "dp/mb" } or {}
            end
            local name = owner(leaf.name)
            local keeps = leaf.op == "param" and zero ~= 3
            local at, part = split[name], not keeps and parted[name]
            local ways = share.at(at, "tp")
            for d = #ways + 1, part or 0 do ways[d] = "" end
            if part then ways[part] = at == part and "tp/dp" or "dp" end
            return ways
        end,
    }
end
