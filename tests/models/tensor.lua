-- Data and tensor parallelism: half of the ranks share the batch, and all
-- that is kept is split over pairs: by its last dimension and by its first in
-- turn, as columns and rows of a perceptron are.
return function(g)
  local batch, rows, flip = {}, {}, false
  for _, leaf in ipairs(g.leaves) do
    if leaf.op == "input" and leaf.dims[1] and not batch[leaf.entry] then
      batch[leaf.entry] = leaf.dims[1]
    end
    if leaf.op == "param" and #leaf.dims > 1 then
      rows[leaf.name], flip = flip, not flip
    end
  end
  -- A moment or an average lies as its parameter: "ema.NAME" as "NAME".
  local function by_rows(name)
    while name and rows[name] == nil do name = name:match("%.(.*)$") end
    return name and rows[name]
  end
  return {
    mesh = { { "dp", g.ranks // 2 }, { "tp", 2 }, { "mb", g.micro, "time" } },
    leaf = function(leaf)
      if leaf.op == "input" then
        return { leaf.dims[1] == batch[leaf.entry] and "dp/mb" or "" }
      end
      local split, at = {}, by_rows(leaf.name) and 1 or #leaf.dims
      for d = 1, #leaf.dims do
        split[d] = d == at and leaf.dims[d] % 2 == 0 and "tp" or ""
      end
      return split
    end,
  }
end
