-- dpc eval --plan tests/error/plans/stage_role_range.lua
return require "lib.scopes"
