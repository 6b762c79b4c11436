-- dpc eval --plan tests/error/plans/stage_scope.lua
return require "lib.scopes"
