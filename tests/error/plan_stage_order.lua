-- dpc eval --plan tests/error/plans/stage_order.lua
return require "lib.scopes"
