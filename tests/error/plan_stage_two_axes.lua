-- dpc eval --plan tests/error/plans/stage_two_axes.lua
return require "lib.scopes"
