return { mesh = {}, leaf = {}, offload = "net.v" }
