-- dpc eval --plan tests/error/plans/stage_number.lua
return require "lib.scopes"
