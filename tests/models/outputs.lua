-- A convolution's result as it is, and the same numbers in a row a picture.
local function eval()
  local image = dpc.input("image", { 4, 12, 12 }, "u8")
  local x = image:cast("f32"):move("bhw->bchw", { c = 1 }) -- [b, 1, h, w]
  local w = (dpc.iota({ 3, 1, 3, 3 }, 0) + dpc.iota({ 3, 1, 3, 3 }, 3)):sin()
  local y = x:conv(w, { pad = 1, stride = 2 })             -- [b, 3, h/2, w/2]
  return { y = y, flat = y:move("bchw->b(chw)"), far = y:lt(1e39) }
end

return { name = "outputs", entries = { eval = eval } }
