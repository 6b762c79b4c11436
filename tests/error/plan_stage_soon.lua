-- dpc verify --plan tests/error/plans/stage_soon.lua
return require "lib.trained_scopes"
