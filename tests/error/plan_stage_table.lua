-- dpc eval --plan tests/error/plans/stage_table.lua
return require "lib.scopes"
