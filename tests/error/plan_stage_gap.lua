-- dpc eval --plan tests/error/plans/stage_gap.lua
return require "lib.scopes"
