-- Tensor parallelism (Shoeybi et al., "Megatron-LM", 2019, section 3): of two
-- contractions in a row the first weight is split by columns, the second by
-- rows, so that what lies between never leaves its rank and one sum a pair is
-- owed.  Heads, hidden units, channels: whatever letter runs from the one to
-- the other.  -P tp=N ranks share a copy of the model; the rest is data
-- parallel.
--
-- Each entry is walked once.  cut[i] is the dimension of node i that lies in
-- parts; weight[i] says that node i is a view of a leaf, and which dimension
-- of the leaf each of its own is.  A product begins a pair only when every
-- way from its columns on leads to rows: not past a norm, not into a residual
-- stream.

local contraction = { dot = true, conv = true }
local source = { const = true, iota = true, scalar = true, random = true }

-- The dimension whose major letter is c: only that one can be split.
local function dimension(term, c)
    for d, letters in ipairs(term) do
        if letters == c or letters:match("^(%w)%w+$") == c then return d end
    end
end

-- The letter that a split of dimension d splits; nil: a window's cannot be.
local function major(term, d) return term[d]:match("^(%w)[^+]*$") end

local function volume(dims)
    local v = 1
    for _, d in ipairs(dims) do v = v * d end
    return v
end

-- What is known of an entry before the walk: users, views of leaves, and
-- what comes from no data.
local function survey(nodes)
    local e = { nodes = nodes, users = {}, weight = {}, free = {}, cut = {} }
    for i, n in ipairs(nodes) do
        local first, free = n.inputs[1], n.letters ~= nil
        for k, r in ipairs(n.inputs) do
            e.users[r] = e.users[r] or {}
            table.insert(e.users[r], { i, k })
            free = free and e.free[r]
        end
        e.free[i] = free or source[n.op]
        local of = first and #n.inputs == 1 and e.weight[first]
        if n.op == "param" or of then
            local map = {}
            for d in ipairs(n.dims) do
                local c = of and major(n.out, d)
                map[d] = of and (c and of.map[dimension(n.letters[1], c) or 0])
                    or not of and d or nil
            end
            e.weight[i] = { name = of and of.name or n.name, map = map }
        end
    end
    return e
end

-- The weight's place among the operands of a product of data and a weight.
local function weight_of(e, n)
    local a, b = e.weight[n.inputs[1]], e.weight[n.inputs[2] or 0]
    return contraction[n.op] and (a ~= nil) ~= (b ~= nil) and (a and 1 or 2)
end

-- Does every way of dimension d of node i lead to rows?  `met` holds the
-- nodes on the way, so that a sum of two of them is known from a residual.
local function leads_to_rows(e, i, d, met)
    met[i] = true
    for _, user in ipairs(e.users[i] or {}) do
        local n, k = e.nodes[user[1]], user[2]
        local c = n.letters and n.op ~= "grad" and major(n.letters[k], d)
        if not c then return false end
        local w, o = weight_of(e, n), dimension(n.out, c)
        local rows = w and dimension(n.letters[w], c)
        if not rows and not o then return false end
        for _, r in ipairs(n.op == "add" and n.inputs or {}) do
            if not (met[r] or e.free[r] or e.weight[r]) then return false end
        end
        if not rows and not met[user[1]]
            and not leads_to_rows(e, user[1], o, met) then
            return false
        end
    end
    return e.users[i] ~= nil
end

return function(g)
    local tp = g.option("tp", g.ranks, "ranks that share a copy of the model")
    local least = g.option("least", 1024, "numbers of a weight worth a split")
    if tp < 1 or g.ranks % tp ~= 0 then
        error(("tp is %d, which does not divide %d ranks"):format(tp, g.ranks))
    end
    local split = {}                    -- leaf -> dimension

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
        if c and dimension(ws, c) then take(leaf, dimension(ws, c)) return end
        if at then return c and dimension(n.out, c) end
        for d in ipairs(volume(node.dims) >= least and ws or {}) do
            c = major(ws, d)
            local o = c and not dimension(xs, c) and dimension(n.out, c)
            if o and node.dims[d] % tp == 0 and leads_to_rows(e, i, o, {})
                and take(leaf, d) then
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
        if not at or n.dims[at] % tp ~= 0 then return end
        for k, r in ipairs(n.inputs) do
            local d = e.weight[r] and dimension(n.letters[k], c)
            if d then take(e.weight[r], d) end
        end
        return at
    end

    for _, entry in ipairs(tp > 1 and g.entries or {}) do
        local e = survey(g.nodes(entry))
        for i, n in ipairs(entry ~= "init" and e.nodes or {}) do
            local w = weight_of(e, n)
            if w then
                e.cut[i] = product(e, i, n, w)
            elseif n.letters and n.op ~= "grad" and not e.weight[i] then
                e.cut[i] = carry(e, n)
            end
        end
    end
    -- Moments and averages lie as their weight: "ema.NAME" as NAME.
    local weight = {}
    for _, leaf in ipairs(g.leaves) do weight[leaf.name] = leaf.op == "param" end
    local function where(name)
        while name and not weight[name] do name = name:match("%.(.*)$") end
        return name and split[name]
    end
    return {
        mesh = { { "dp", g.ranks // tp }, { "tp", tp },
                 { "mb", g.micro, "time" } },
        leaf = function(leaf)
            if leaf.op == "input" then
                return leaf.batch and { "dp/mb" } or {}
            end
            local at, s = where(leaf.name), {}
            for d = 1, at or 0 do s[d] = d == at and "tp" or "" end
            return s
        end,
    }
end
