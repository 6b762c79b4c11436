-- dpc eval --plan tests/error/plans/stage_role.lua
return require "lib.scopes"
