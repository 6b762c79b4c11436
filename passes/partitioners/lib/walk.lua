-- Walks over the nodes of an entry, for partitioners that follow letters.
local walk = {}

local contraction = { dot = true, conv = true }
local source = { const = true, iota = true, scalar = true, random = true }
local along = { concat = true, slice = true, pad = true }

-- The dimension whose major letter is c: only that one can be split.
function walk.dimension(term, c)
    for d, letters in ipairs(term) do
        if letters == c or letters:match("^(%w)%w+$") == c then return d end
    end
end
local dimension = walk.dimension

-- The letter that a split of dimension d splits; nil: a window's cannot be.
function walk.major(term, d) return term[d]:match("^(%w)[^+]*$") end
local major = walk.major

-- What is known of an entry before the walk: users, views of leaves, and
-- what comes from no data.  users[i] is a user and which of its operands node i
-- is, and the next two; nil: none.  cut[i] is the dimension of node i that lies in
-- parts; weight[i] says that node i is a view of a leaf, and which dimension
-- of the leaf each of its own is.
function walk.survey(entry, nodes)
    local e = { entry = entry, nodes = nodes, users = {}, weight = {},
                free = {}, cut = {} }
    local users = e.users
    for i, n in ipairs(nodes) do
        local first, free = n.inputs[1], n.letters ~= nil
        for k, r in ipairs(n.inputs) do
            local of = users[r]
            if of then
                local m = #of
                of[m + 1], of[m + 2] = i, k
            else
                users[r] = { i, k }
            end
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
function walk.weight_of(e, n)
    local a, b = e.weight[n.inputs[1]], e.weight[n.inputs[2] or 0]
    return contraction[n.op] and (a ~= nil) ~= (b ~= nil) and (a and 1 or 2)
end

function walk.is_data(e, i) return not (e.free[i] or e.weight[i]) end

-- A product of two values of the data: scores, or what they weigh.
function walk.is_mixing(e, n)
    return (n.op == "dot" or n.op == "attn") and n.inputs[1] ~= n.inputs[2]
        and walk.is_data(e, n.inputs[1]) and walk.is_data(e, n.inputs[2])
end

-- A value's name in a plan.
function walk.name(e, i)
    local n = e.nodes[i]
    return e.entry .. ":" .. (n.scope ~= "" and n.scope .. "." or "") .. n.name
end

-- Dimensions of node i's operand k that are those of i; names are kept.
local function before(n, k, dims)
    local to = {}
    for name, d in pairs(dims) do
        local c = not along[n.op] and major(n.out, d)
        to[name] = along[n.op] and d or c and dimension(n.letters[k], c) or nil
    end
    return to
end

-- From node i back to the products with weights that it is made of:
-- visit(node, its dimensions by name).
function walk.back(e, i, dims, visit, met)
    local n = e.nodes[i]
    met = met or {}
    if met[i] or not n.letters then return end
    met[i] = true
    if walk.weight_of(e, n) then visit(i, dims) return end
    if n.op == "grad" or walk.is_mixing(e, n) then return end
    for k, r in ipairs(n.inputs) do
        if walk.is_data(e, r) then
            walk.back(e, r, before(n, k, dims), visit, met)
        end
    end
end

-- From node i on to the products with weights that fold its dimension
-- `gone`: visit(node, dimensions) for the operand of each.  Past products
-- of two values, which are told to mix(node, dimensions).
function walk.ahead(e, i, dims, gone, visit, mix, met)
    met = met or {}
    if met[i] then return end
    met[i] = true
    local users = e.users[i] or {}
    for u = 1, #users, 2 do
        local user, k = users[u], users[u + 1]
        local n, to = e.nodes[user], {}
        for name, d in pairs(n.letters and n.op ~= "grad" and dims or {}) do
            local c = not along[n.op] and major(n.letters[k], d)
            to[name] = along[n.op] and d or c and dimension(n.out, c) or nil
        end
        if not to[gone] and walk.weight_of(e, n) then visit(i, dims) end
        if to[gone] and not walk.weight_of(e, n) then
            if walk.is_mixing(e, n) then mix(user, to) end
            walk.ahead(e, user, to, gone, visit, mix, met)
        end
    end
end

return walk
