-- dpc eval --plan tests/error/plans/stage_alive.lua
return require "lib.scopes"
