-- options.lua -- the keyword arguments of a constructor: names, defaults,
-- kinds, checked once for JSON configs and for Lua tables alike.
--
-- A constructor declares its options as name -> default.  `take` returns a
-- table that holds each of them; a key that is not declared, one that is
-- missing and has no default, and a value of another kind are errors, at the
-- key's line where the table comes from `--config`.

local kinds = require "kinds"

local options = {}

-- In place of a default: the option must be given; as a whole number; as the
-- keywords of another constructor; as a text.
options.required = { required = true }
options.size = { required = true, kind = "size" }
options.section = { required = true, kind = "table" }
options.text = { required = true, kind = "string" }

-- nil when absent or null; else of that kind ("number", "size", ...).
function options.maybe(kind)
  return { maybe = kind }
end

-- nil when absent or null; else a list of that kind, not empty.
function options.listed(kind)
  return { maybe = "table", listed = kind }
end

-- A default whose kind it does not say: whole numbers from 0; from 0 to 1.
function options.count(default)
  return { default = default, kind = "count" }
end

function options.share(default)
  return { default = default, kind = "share" }
end

function options.positive(default)
  return { default = default, kind = "positive" }
end

-- One value for all stages, or a list of one each, of that kind (the
-- default's).
function options.each(default, kind)
  return { each = default, kind = kind or kinds.of(default) }
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

local origins = {}                     -- table -> { table of a file, prefix }

-- `part` was made of those keys of `origin` that begin with `prefix`: that is
-- where its keys stand.
function options.descends(part, origin, prefix)
  origins[part] = { origin, prefix }
end

-- The constructor's name and the text, at the key's line.
local function fail(given, key, what, text, ...)
  local from, prefix = given, ""
  if origins[given] then
    from, prefix = table.unpack(origins[given])
  end
  dpc.fail(("%s: " .. text):format(what, ...),
           dpc.where(from, key and prefix .. key))
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

-- Each element of a list, or the value alone, is of the rule's kind; without a
-- default null, in Lua false, stands for nil.
local function check_each(given, key, what, value, rule)
  local list = {}
  for i, x in ipairs(type(value) == "table" and value or { value }) do
    local null = rule.each == dpc.null and (x == dpc.null or x == false)
    local fit, wrong = null and dpc.null or nil, nil
    if not null then
      fit, wrong = kinds.fit(x, rule.kind)
    end
    if fit == nil then
      fail(given, key, what, "%s%s %s", key, type(value) == "table"
           and ("[%d]"):format(i - 1) or "", wrong)
    end
    list[i] = fit
  end
  if #list == 0 then
    fail(given, key, what, "%s is an empty list", key)
  end
  return type(value) == "table" and list or list[1]
end

-- The kind that a rule wants; nil: any.
local function kind_of(rule)
  if type(rule) ~= "table" then
    return kinds.of(rule)
  elseif rule.any or rule.required and not rule.kind then
    return nil
  end
  return rule.maybe or rule.kind or "table"
end

local function value_of(given, key, what, rule)
  local value = given[key]
  local null = value == nil or value == dpc.null
  local marked = type(rule) == "table" and rule or {}
  if marked.required and null then
    fail(given, value and key, what, "\"%s\" is missing; it has no default",
         key)
  elseif marked.each ~= nil then
    if value == nil or null and marked.each == dpc.null then
      return marked.each
    end
    return check_each(given, key, what, value, rule)
  elseif marked.maybe or marked.any then
    if null then return nil end
  elseif value == nil then
    if marked.default ~= nil then return marked.default end
    return rule
  end
  local kind, fit, wrong = kind_of(rule), value, nil
  if marked.listed or marked[1] ~= nil then
    fit, wrong = kinds.list(value, marked.listed or kinds.of(marked[1]))
  elseif kind then
    fit, wrong = kinds.fit(value, kind)
  end
  if fit == nil then
    fail(given, key, what, "%s", kinds.said(key, wrong))
  end
  return fit
end

-- The options of constructor `what` that table `given` sets, the others at
-- their defaults.  The table remembers where they come from, for messages of
-- its own: from `origin`, where `given` is a part of it, made anew.
function options.take(given, what, declared, origin)
  given = given or {}
  if type(given) ~= "table" then
    dpc.fail(("%s is %s; a table of its keywords is wanted")
             :format(what, tostring(given)))
  end
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
