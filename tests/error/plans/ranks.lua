return { mesh = { {"dp", 2} }, leaf = {} }
