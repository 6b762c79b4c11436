-- dpc eval --plan tests/error/plans/stage_one.lua
return require "lib.scopes"
