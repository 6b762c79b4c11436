-- options.lua -- a constructor's options, made whole: what was given, out of a
-- config.json or a case, over the defaults.

local options = {}

-- A copy of `given` over `defaults`, whose values say what is taken and of
-- which type; keys of `ignored`, and those that begin with an underscore, are
-- left out.  Others are errors at their line of the file, where there is one.
function options.whole(what, given, defaults, ignored)
  local full = {}
  for key, value in pairs(defaults) do
    full[key] = value
  end
  given = given or {}
  local function fail(key, form, ...)
    dpc.fail((what .. ": " .. form):format(...),
             given == dpc.config and dpc.where(given, key) or nil)
  end
  for key, value in pairs(given) do
    local known = full[key] ~= nil
    if not known and not ignored[key] and key:sub(1, 1) ~= "_" then
      fail(key, "no option \"%s\"", key)
    end
    if known and value ~= dpc.null then
      if type(value) ~= type(full[key]) then
        fail(key, "\"%s\" is a %s; a %s is wanted", key, type(value),
             type(full[key]))
      end
      full[key] = value
    end
  end
  return full
end

return options
