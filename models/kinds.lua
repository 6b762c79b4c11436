-- kinds.lua -- what the value of an option may be: "boolean", "string",
-- "table", "number", and of numbers "size" (whole, from 1), "count" (whole,
-- from 0), "share" (from 0 to 1), "positive".
--
-- A default says most: of 8 the others are sizes, of 0 counts, of 0.5 numbers.

local kinds = {}

local wanted = {
  size = "a whole number from 1", count = "a whole number from 0",
  share = "a number from 0 to 1", number = "a number",
  positive = "a number above 0",
  boolean = "true or false", string = "a text", table = "a list or table",
}

-- The kind of values that may stand in place of `default`.
function kinds.of(default)
  if math.type(default) == "integer" then
    return default >= 1 and "size" or "count"
  end
  return type(default)
end

function kinds.empty(t)
  for _ in pairs(t) do
    return false
  end
  return true
end

local function shown(x)
  if x == dpc.null then
    return "null"
  elseif type(x) == "table" then
    return kinds.empty(x) and "empty" or "a list or table"
  elseif type(x) == "string" then
    return ("\"%s\""):format(x)
  end
  return tostring(x)
end

-- x as that kind (768.0 as 768); or nil, and what is wrong with it.
function kinds.fit(x, kind)
  local fits = type(x) == kind
  if wanted[kind] and kind ~= "number" and math.type(x) then
    local whole = math.tointeger(x)
    fits = kind == "size" and whole and whole >= 1
        or kind == "count" and whole and whole >= 0
        or kind == "share" and x >= 0 and x <= 1
        or kind == "positive" and x > 0 and x < math.huge
    x = (kind == "size" or kind == "count") and whole or x
  elseif kind == "number" and fits then
    fits = x == x and x < math.huge and x > -math.huge
  end
  if fits then
    return x
  end
  return nil, ("is %s; %s is wanted"):format(shown(x), wanted[kind])
end

-- What is wrong with the value of `key`: of "[2] is .." with its element.
function kinds.said(key, wrong)
  return key .. (wrong:sub(1, 1) == "[" and "" or " ") .. wrong
end

-- A list of that kind, of at least one value (or of `least`); or nil, and what
-- is wrong.
function kinds.list(x, kind, least)
  if type(x) ~= "table" or #x < (least or 1) or #x == 0
      and not kinds.empty(x) then
    return nil, ("is %s; a list is wanted"):format(shown(x))
  end
  local list = {}
  for i, value in ipairs(x) do
    local fit, wrong = kinds.fit(value, kind)
    if fit == nil then
      return nil, ("[%d] %s"):format(i - 1, wrong)
    end
    list[i] = fit
  end
  return list
end

-- An error unless x, `what`'s input `name`, has these sizes (false: any);
-- option: what declares them.  nil is fine.
function kinds.expect(what, name, x, dims, option)
  if x == nil then
    return
  end
  local have = x:dims()
  local same = #have == #dims
  for i, d in ipairs(dims) do
    same = same and (not d or have[i] == d)
  end
  if same then
    return
  end
  local list = {}
  for i, d in ipairs(dims) do
    list[i] = d and tostring(d) or "any"
  end
  dpc.fail(("%s: %s is [%s]; [%s] is wanted%s"):format(
      what, name, table.concat(have, ","), table.concat(list, ","),
      option and " (" .. option .. ")" or ""))
end

return kinds
