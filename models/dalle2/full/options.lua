-- options.lua -- the keyword arguments of a constructor: names, defaults,
-- kinds, checked once for JSON configs and for Lua tables alike.
--
-- A constructor declares its options as name -> default.  `take` returns a
-- table that holds each of them; a key that is not declared, one that is
-- missing and has no default, and a value of another kind are errors, at the
-- key's line where the table comes from `--config`.

local options = {}

-- In place of a default: the option must be given.
options.required = { required = true }

-- nil when absent or null; else of that type ("number", "table", ...).
function options.maybe(kind)
  return { maybe = kind }
end

-- One value for all stages, or a list of one each.
function options.each(default)
  return { each = default }
end

-- Any type; nil when absent or null.
options.any = { any = true }

local function keys_of(t)
  local list = {}
  for key in pairs(t) do
    list[#list + 1] = key
  end
  return list
end

-- The constructor's name and the text, at the key's line.
local function fail(given, key, what, text, ...)
  dpc.fail(("%s: " .. text):format(what, ...), dpc.where(given, key))
end

local function check_keys(given, what, declared)
  for key in pairs(given) do
    if declared[key] == nil then
      local near = dpc.near(tostring(key), keys_of(declared))
      fail(given, key, what, "no option \"%s\"%s", tostring(key),
           near and ("; did you mean \"%s\"?"):format(near) or "")
    end
  end
end

-- Each element of a list, or the value alone, is of the default's type; in a
-- list without a default null, in Lua false, stands for nil.
local function check_each(given, key, what, value, default)
  local list = type(value) == "table" and value or { value }
  for i, x in ipairs(list) do
    local null = default == dpc.null and (x == dpc.null or x == false)
    list[i] = null and dpc.null or x
    local kind = default == dpc.null and "number" or type(default)
    if type(x) ~= kind and not null then
      fail(given, key, what, "%s holds a %s; a %s is wanted", key, type(x),
           kind)
    end
  end
  return value
end

local function value_of(given, key, what, rule)
  local value = given[key]
  local null = value == nil or value == dpc.null
  local marked = type(rule) == "table"
  if marked and rule.required and null then
    fail(given, value and key, what, "\"%s\" is missing; it has no default",
         key)
  elseif marked and rule.each ~= nil then
    if null then return rule.each end
    return check_each(given, key, what, value, rule.each)
  elseif marked and (rule.maybe or rule.any) then
    if null then return nil end
  elseif value == nil then
    return rule
  end
  local kind = marked and rule.maybe or not marked and type(rule)
  if kind and type(value) ~= kind then
    fail(given, key, what, "%s is %s; a %s is wanted", key,
         value == dpc.null and "null" or "a " .. type(value), kind)
  end
  return value
end

-- The options of constructor `what` that table `given` sets, the others at
-- their defaults.  The table remembers where they come from, for messages of
-- its own: from `origin`, where `given` is a part of it, made anew.
function options.take(given, what, declared, origin)
  given = given or {}
  check_keys(given, what, declared)
  local o = setmetatable({}, { __index = { given = origin or given,
                                           what = what } })
  for key, rule in pairs(declared) do
    o[key] = value_of(given, key, what, rule)
  end
  return o
end

-- An error about option `key` of a table that `take` made.
function options.fail(o, key, text, ...)
  fail(o.given, key, o.what, text, ...)
end

-- option `key` as a list of n: itself, or its one value n times.
function options.list(o, key, n)
  local value = o[key]
  if type(value) ~= "table" then
    local list = {}
    for i = 1, n do
      list[i] = value
    end
    return list
  end
  if #value ~= n then
    options.fail(o, key, "%s has %d values; %d are wanted", key, #value, n)
  end
  return value
end

-- Declarations of several constructors that share one table of keywords.
function options.join(...)
  local all = {}
  for _, declared in ipairs{ ... } do
    for key, rule in pairs(declared) do
      all[key] = rule
    end
  end
  return all
end

-- Of `given` the keys that `declared` has; for a constructor that passes the
-- rest of its keywords on.
function options.part(o, declared)
  local some = {}
  for key in pairs(declared) do
    some[key] = o[key]
  end
  return setmetatable(some, { __index = { given = o.given, what = o.what } })
end

return options
