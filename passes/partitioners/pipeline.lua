-- A pipeline (Huang et al., "GPipe", NeurIPS 2019): the layers in a row, cut
-- into stages of about equal cost, over another partitioner for the ranks of a
-- stage.  A layer is a scope without scopes in it; what stands between layers
-- works where the latest of its operands does.  Cuts are made only where all
-- goes forward, and of those that balance alike where least is sent.
local share = require "lib.share"

local SLACK = 1.05                      -- of the best balance, to send less
local POINT = 16                        -- flops that a point costs to move

local bytes = { f32 = 4, bf16 = 2, i32 = 4, u8 = 1 }

local function up(scope) return scope:match("^(.*)%.[^.]*$") end

-- Scopes that hold scopes.
local function parents(nodes)
    local is = {}
    for _, n in ipairs(nodes) do
        local s = up(n.scope)
        while s and not is[s] do
            is[s] = true
            s = up(s)
        end
    end
    return is
end

-- Of each node of the forward graph the number of its layer, or nil; the
-- layers' costs; and the leaves' layers, by name.
local function survey(nodes, trainable)
    local is_parent = parents(nodes)
    local e = { nodes = nodes, layer = {}, cost = {}, of = {}, leaf = {},
                name = {}, scope = {} }
    local behind, trained = {}, {}
    for i, n in ipairs(nodes) do
        local latest
        e.scope[n.scope] = true
        behind[i] = n.op == "grad"
        trained[i] = n.op == "param" and trainable[n.name]
        for _, r in ipairs(n.inputs) do
            behind[i] = behind[i] or behind[r]
            trained[i] = trained[i] or trained[r]
            local l = e.layer[r]
            if l and not (latest and latest > l) then latest = l end
        end
        if n.letters and not behind[i] then
            local s = n.scope
            if s ~= "" and not is_parent[s] then
                if not e.of[s] then
                    e.name[#e.name + 1], e.of[s] = s, #e.name + 1
                    e.cost[#e.name] = 0
                end
                latest = e.of[s]
            end
            e.layer[i] = latest
            if latest then
                e.cost[latest] = e.cost[latest] + (trained[i] and 3 or 1)
                    * (n.flops + POINT * share.volume(n.dims))
            end
        end
    end
    local first = {}                    -- layer that reads a node, somehow
    for i = #nodes, 1, -1 do
        local l = not behind[i] and (e.layer[i] or first[i])
        for _, r in ipairs(l and nodes[i].inputs or {}) do
            first[r] = first[r] and first[r] < l and first[r] or l
        end
        if nodes[i].op == "param" then e.leaf[nodes[i].name] = first[i] end
    end
    return e
end

-- traffic[l]: bytes that go from layers up to l to later ones; false where
-- something comes back, so that no cut can be there.
local function boundaries(e)
    local n, plus = #e.name, {}
    local traffic, back = {}, {}
    for i = 1, n + 1 do plus[i], back[i], traffic[i] = 0, 0, 0 end
    local last = {}
    for i, node in ipairs(e.nodes) do
        for _, r in ipairs(e.layer[i] and node.inputs or {}) do
            local from, to = e.layer[r], e.layer[i]
            if from and to < from then
                back[to] = back[to] + 1
                back[from] = back[from] - 1
            elseif from and to > (last[r] or from) then
                last[r] = to
            end
        end
    end
    for r, to in pairs(last) do
        local x = e.nodes[r]
        local b = share.volume(x.dims) * bytes[x.dtype]
        plus[e.layer[r]] = plus[e.layer[r]] + b
        plus[to] = plus[to] - b
    end
    local b, k = 0, 0
    for i = 1, n do
        b, k = b + plus[i], k + back[i]
        traffic[i] = k == 0 and b
    end
    return traffic
end

-- Layers that no cut can part, as units: their last layers and costs.
local function units(e, traffic)
    local list, cost = {}, 0
    for i = 1, #e.name do
        cost = cost + e.cost[i]
        if traffic[i] or i == #e.name then
            list[#list + 1] = { last = i, cost = cost, sent = traffic[i] or 0 }
            cost = 0
        end
    end
    return list
end

-- Do stages of at most that cost suffice, with a unit in each?
local function fits(list, stages, most)
    local used, sum = 1, 0
    for _, u in ipairs(list) do
        if u.cost > most then return false end
        if sum + u.cost > most then used, sum = used + 1, 0 end
        sum = sum + u.cost
    end
    return used <= stages
end

-- The cuts: the last unit of each stage, with least sent.
local function cuts(list, stages)
    local high, low = 0, 0
    for _, u in ipairs(list) do high = high + u.cost end
    for _ = 1, 60 do
        local mid = (low + high) / 2
        if fits(list, stages, mid) then high = mid else low = mid end
    end
    local most = high * SLACK
    local best, from = { [0] = { [0] = 0 } }, {}
    for s = 1, stages do
        best[s], from[s] = {}, {}
        for i = s, #list - (stages - s) do
            local sum = 0
            for k = i, s, -1 do
                sum = sum + list[k].cost
                if sum > most then break end
                local before = best[s - 1][k - 1]
                local all = before and before
                    + (i < #list and list[i].sent or 0)
                if all and not (best[s][i] and best[s][i] <= all) then
                    best[s][i], from[s][i] = all, k - 1
                end
            end
        end
    end
    local ends, i = {}, #list
    for s = stages, 1, -1 do ends[s], i = i, from[s][i] end
    return ends
end

-- Prefixes instead of whole scopes, where all nodes within are of one stage.
local function shorten(e, of_layer)
    local of, out = {}, {}
    for i, n in ipairs(e.nodes) do
        local k, p = of_layer[e.layer[i]], n.scope
        while k and p do
            of[p] = (of[p] == nil or of[p] == k) and k
            p = up(p)
        end
    end
    for s, l in pairs(e.of) do
        local best, p = s, s
        while p do
            best = p ~= "" and of[p] and p or best
            p = up(p)
        end
        out[best] = of_layer[l]
    end
    return out
end

local function within(out, name)
    while name and out[name] == nil do name = up(name) end
    return name and out[name]
end

local function entry_of(g)
    for _, e in ipairs(g.entries) do
        if e == "train" then return e end
    end
    return g.entries[1]
end

-- The nearest plan that works where a model has so few layers.
local function nearest(g, pp, v, layers)
    while v > 1 and pp * v > layers do v = v - 1 end
    while pp > 1 and (pp > layers or g.ranks % pp ~= 0) do pp = pp - 1 end
    return ("-P pp=%d -P v=%d"):format(pp, v)
end

-- Which stage works in which scope, for v stages on each of pp roles.
local function stages_of(g, pp, v)
    local stages = pp * v
    local trainable = {}
    for _, leaf in ipairs(g.leaves) do
        trainable[leaf.name] = leaf.trainable
    end
    local e = survey(g.nodes(entry_of(g)), trainable)
    local list = units(e, boundaries(e))
    if stages > #list then
        g.refuse(("%d stages, but the model has %d layers that can be cut apart; "
               .. "the nearest plan that works: %s"):format(stages, #list,
            nearest(g, pp, v, #list)))
    end
    local of_layer, first = {}, 1
    for s, last in ipairs(cuts(list, stages)) do
        for l = first, list[last].last do of_layer[l] = s - 1 end
        first = list[last].last + 1
    end
    local out = shorten(e, of_layer)
    for name, l in pairs(e.leaf) do     -- but where a scope has its name, too
        if within(out, name) ~= of_layer[l] and not e.scope[name] then
            out[name] = of_layer[l]
        end
    end
    return out
end

return function(g)
    local pp = share.group(g, "pp", g.ranks, "roles of the pipeline")
    local v = g.option("v", 1, "stages of a role")
    local order = g.option("order", v > 1 and "interleaved" or "1f1b",
                           "gpipe, 1f1b, interleaved, zb-h1 or auto")
    local alive = g.option("alive", 0, "order=auto: forwards that a role may "
                           .. "be ahead of backward; 0: as 1f1b")
    local tp = g.option("tp", 1, "ranks that share a stage's weights")
    local inner = g.option("inner", tp > 1 and "megatron" or "ddp",
                           "the partitioner of a stage's ranks")
    if v < 1 then error(("v is %d; a role has one stage or more"):format(v)) end
    local h = setmetatable({ ranks = g.ranks // pp }, { __index = g })
    function h.option(name, default, doc)
        if name == "tp" then return tp end
        return g.option(name, default, doc)
    end
    local plan = require(inner)(h)
    table.insert(plan.mesh, 1, { "pp", pp, "stage" })
    if pp > 1 then
        plan.stage = stages_of(g, pp, v)
        plan.order = order
        if alive > 0 then plan.alive = alive end
    end
    return plan
end
