-- dpc check -Dbatch=4.5
local batch = dpc.option("batch", 8, "rows a step")
