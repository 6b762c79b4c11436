return function(g)
    return {
        mesh = { {"dp", g.ranks} },
        leaf = function(leaf)
            return { "pd" }
        end,
    }
end
