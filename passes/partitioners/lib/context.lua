-- Context parallelism: the tokens of each attention lie over `sp`.
--
-- An attention is a product of two values, queries by keys.  From its
-- operands back, the products with weights that made them are where tokens in
-- parts enter; what these products read lies in parts, and with it all else
-- that goes by tokens: norms, residuals, the layers between.
local share = require "lib.share"
local walk = require "lib.walk"

local context = {}

-- Dimension (a name) by word; "*" elsewhere.
local function splits(dims, what)
    local list, last = {}, 0
    for _, d in pairs(dims) do last = d > last and d or last end
    for d = 1, last do list[d] = "*" end
    for name, axes in pairs(what) do
        if dims[name] then list[dims[name]] = axes end
    end
    return list
end

-- Letters of an attention: tokens and heads of its operands and result.
-- nil where there is no second letter to share, besides the batch.
local function attention(e, i)
    local n = e.nodes[i]
    local q, k = n.letters[1], n.letters[2]
    local a = { heads = {}, tokens = {} }
    for d = 2, #q do
        local c = walk.major(q, d)
        local o = c and walk.dimension(n.out, c)
        if o and walk.dimension(k, c) then a.heads[1], a.head = d, c end
        if o and not walk.dimension(k, c) then
            if not a.tokens[1] then a.tokens[1], a.query = d, c
            elseif n.op == "attn" then a.heads[1], a.head = d, c end
        end
    end
    for m = 2, n.op == "attn" and 3 or 2 do
        for d = 2, #n.letters[m] do
            local c = walk.major(n.letters[m], d)
            if c and c == a.head then a.heads[m] = d
            elseif c and not walk.dimension(q, c) and not a.tokens[m] then
                a.tokens[m] = d
            end
        end
    end
    if a.query and a.tokens[2] then return a end
end

-- All constraints of an entry: `mix(e, i, a, say)` for each attention.
local function entry_walk(e, mix)
    local value, is = {}, {}
    local function say(i, forward, backward)
        local key = walk.name(e, i)
        value[key] = value[key] or forward
        value[key].grad = value[key].grad or backward
    end
    for i, n in ipairs(e.nodes) do
        local a = walk.is_mixing(e, n) and not is[i] and attention(e, i)
        if a then mix(e, i, a, say, is) end
    end
    return value
end

-- What a product with a weight reads: tokens in parts.
local function reads(e, i, say)
    local n = e.nodes[i]
    local x = n.inputs[3 - walk.weight_of(e, n)]
    if #e.nodes[x].dims >= 3 then say(x, { "*", "sp" }, { "*", "sp" }) end
end

-- Operand m of attention i, back to where it is made.
local function operand(e, i, a, m, forward, backward, say)
    local dims = { tokens = a.tokens[m], heads = a.heads[m] }
    walk.back(e, e.nodes[i].inputs[m], dims, function(r, at)
        if not at.tokens then return end
        reads(e, r, say)
        if forward then say(r, splits(at, forward), splits(at, backward)) end
    end)
end

-- Keys and values are joined, queries stay in parts.
function context.gather(e, i, a, say, is)
    operand(e, i, a, 1, nil, nil, say)
    for m = 2, e.nodes[i].op == "attn" and 3 or 2 do
        operand(e, i, a, m, { tokens = "" }, { tokens = "sp" }, say)
    end
    local n = e.nodes[i]
    local dims = { query = walk.dimension(n.out, a.query) }
    -- the product of scores and values: its second operand has them
    walk.ahead(e, i, dims, "query", function() end, function(r)
        is[r] = true
        local v, d = e.nodes[r].letters[2], nil
        for k = 2, #v do
            local c = walk.major(v, k)
            if c and not walk.dimension(e.nodes[r].out, c) then d = k end
        end
        operand(e, r, { tokens = { [2] = d }, heads = {} }, 2,
                { tokens = "" }, { tokens = "sp" }, say)
    end)
end

-- Keys and values of an attention in one piece come round; of others, whose
-- scores lie in memory, they are joined.
function context.ring(e, i, a, say, is)
    if e.nodes[i].op ~= "attn" then return context.gather(e, i, a, say, is) end
    operand(e, i, a, 1, nil, nil, say)
    for m = 2, 3 do
        operand(e, i, a, m, { tokens = "sp" }, { tokens = "sp" }, say)
    end
end

-- Heads in parts instead of tokens, while they attend (Jacobs et al., 2023).
function context.heads(e, i, a, say, is)
    local parts, joined = { tokens = "", heads = "sp" },
                          { tokens = "sp", heads = "" }
    if not a.head then return context.gather(e, i, a, say, is) end
    for m = 1, e.nodes[i].op == "attn" and 3 or 2 do
        operand(e, i, a, m, parts, joined, say)
    end
    local n = e.nodes[i]
    local dims = { tokens = walk.dimension(n.out, a.query),
                   heads = walk.dimension(n.out, a.head) }
    walk.ahead(e, i, dims, "heads", function(r, at)
        if at.tokens then say(r, splits(at, joined), splits(at, parts)) end
    end, function(r)
        is[r] = true
        local v, at = e.nodes[r].letters[2], { tokens = {}, heads = {} }
        for k = 2, #v do
            local c = walk.major(v, k)
            local o = c and walk.dimension(e.nodes[r].out, c)
            if c and not o then at.tokens[2] = k end
            if o and walk.dimension(e.nodes[r].letters[1], c) then
                at.heads[2] = k
            end
        end
        operand(e, r, at, 2, parts, joined, say)
    end)
end

function context.plan(g, mix, rings)
    local sp = share.group(g, "sp", g.ranks, "ranks that share the tokens")
    local value = {}
    for _, entry in ipairs(sp > 1 and g.entries or {}) do
        local e = walk.survey(entry, g.nodes(entry))
        for key, lie in pairs(entry ~= "init" and entry_walk(e, mix) or {}) do
            value[key] = lie
        end
    end
    return {
        mesh = { { "dp", g.ranks // sp }, { "sp", sp },
                 { "mb", g.micro, "time" },
                 rings and { "sp'", sp, "time" } or nil },
        value = value,
        leaf = function(leaf) return leaf.batch and { "dp/mb" } or {} end,
    }
end

return context
