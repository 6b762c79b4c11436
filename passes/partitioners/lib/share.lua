-- What partitioners share: sizes, whose moments a leaf holds, and the family
-- of ZeRO (Rajbhandari et al., "ZeRO", SC 2020).
local share = {}

function share.volume(dims)
    local n = 1
    for _, d in ipairs(dims) do n = n * d end
    return n
end

-- The weight whose moment or average a leaf is: "ema.NAME" is NAME's; a weight
-- is its own.  nil: neither.
function share.owner(g)
    local weight = {}
    for _, leaf in ipairs(g.leaves) do weight[leaf.name] = leaf.op == "param" end
    return function(name)
        while name and not weight[name] do name = name:match("%.(.*)$") end
        return name
    end
end

-- The first dimension that parts divide, or else the longest.
function share.cut(dims, parts)
    local longest = 1
    for d, size in ipairs(dims) do
        if size % parts == 0 then return d end
        if size > dims[longest] then longest = d end
    end
    return dims[longest] >= parts and longest or nil
end

-- The split of one dimension: "" before it.
function share.at(dimension, axes)
    local split = {}
    for d = 1, dimension or 0 do split[d] = d == dimension and axes or "" end
    return split
end

-- A divisor of the ranks that an option says.
function share.group(g, name, default, doc)
    local n = g.option(name, default, doc)
    if n < 1 or g.ranks % n ~= 0 then
        error(("%s is %d, which does not divide %d ranks")
                  :format(name, n, g.ranks), 2)
    end
    return n
end

-- Dimensions of weights of which each of `parts` ranks keeps a part: trainable
-- ones, for what the optimizer knows about them; where the weights are parted
-- themselves, frozen ones too.  `held`: the extents that a rank has to part.
function share.parted(g, parts, weights, held)
    local least = g.option("least", 1024, "numbers of a part worth a transfer")
    local parted = {}
    for _, leaf in ipairs(g.leaves) do
        local dims = held and held(leaf) or leaf.dims
        local counts = leaf.trainable or weights and leaf.op == "param"
        if counts and share.volume(dims) >= least * parts then
            parted[leaf.name] = share.cut(dims, parts)
        end
    end
    return parted
end

-- Ranks keep a part each of what the optimizer knows about large weights and,
-- where `weights`, of these.  All share the batch; `nodes` of them, one in
-- each node, hold the same part.
function share.zero(g, o)
    local nodes = o.nodes or 1
    local ranks = g.ranks // nodes
    local owner, parted = share.owner(g), share.parted(g, ranks, o.weights)
    return {
        reduce = o.reduce, gather = o.gather,
        mesh = { { "node", nodes }, { "dp", ranks },
                 { "mb", g.micro, "time" } },
        leaf = function(leaf)
            if leaf.op == "input" then
                return leaf.batch and { "node/dp/mb" } or {}
            end
            local keeps = leaf.op == "param" and not o.weights
            local name = owner(leaf.name)
            return share.at(not keeps and name and parted[name], "dp")
        end,
    }
end

return share
