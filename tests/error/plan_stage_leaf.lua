-- dpc eval --plan tests/error/plans/stage_leaf.lua
return require "lib.scopes"
