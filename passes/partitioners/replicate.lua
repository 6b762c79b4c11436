-- Everything whole on every rank: what a plan is compared with.
return function(g)
    return {
        mesh = { { "r", g.ranks }, { "t", g.micro, "time" } },
        leaf = function() return {} end,
    }
end
