-- options.lua -- a constructor's options, made whole: what was given, out of a
-- config.json or a case, over the defaults.

local kinds = require "kinds"

local options = {}

-- An error about key `key` of a constructor's table, at its line of the file, or
-- the table's where it has no such key.
function options.fail(what, given, key, form, ...)
  dpc.fail((what .. ": " .. form):format(...),
           given and dpc.where(given, key) or nil)
end

local function names_of(defaults)
  local list = {}
  for key in pairs(defaults) do
    list[#list + 1] = key
  end
  return list
end

-- `value` as what `default` is: a list of the like (of `default.least` or
-- more, where that says so), or one.
local function fit(value, default)
  if type(default) == "table" and #default > 0 then
    return kinds.list(value, kinds.of(default[1]), default.least)
  end
  return kinds.fit(value, kinds.of(default))
end

-- Refuses a config.json that says it is of another class than `class`.
local function class_check(what, given, class)
  local said = given and given._class_name
  if said ~= nil and said ~= class then
    options.fail(what, given, "_class_name", "_class_name is %s; the config "
                 .. "of a %s is wanted", type(said) == "string"
                 and ("\"%s\""):format(said) or tostring(said), class)
  end
end

-- A copy of `given` over `defaults`, whose values say what is taken and of
-- which kind; keys of `ignored`, and those that begin with an underscore, are
-- left out.  Others are errors at their line of the file, where there is one.
-- null: key -> the option whose value a null there stands for.  class: what
-- `_class_name` says, where it is said.
function options.whole(what, given, class, defaults, ignored, null)
  class_check(what, given, class)
  local full = {}
  for key, value in pairs(defaults) do
    full[key] = value
  end
  for key, value in pairs(given or {}) do
    local known, name = full[key] ~= nil, tostring(key)
    if not known and not ignored[key] and name:sub(1, 1) ~= "_" then
      local near = dpc.near(name, names_of(defaults))
      options.fail(what, given, key, "no option \"%s\"%s", name, near
                   and ("; did you mean \"%s\"?"):format(near) or "")
    end
    if known and not (value == dpc.null and null and null[key]) then
      local x, wrong = fit(value, defaults[key])
      if x == nil then
        options.fail(what, given, key, "%s", kinds.said(key, wrong))
      end
      full[key] = x
    end
  end
  for key, other in pairs(null or {}) do
    if given and given[key] == dpc.null then
      full[key] = full[other]
    end
  end
  return full
end

return options
