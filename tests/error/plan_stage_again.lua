-- dpc verify --plan tests/error/plans/stage_again.lua
return require "lib.trained_scopes"
