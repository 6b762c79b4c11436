-- dpc verify --plan tests/error/plans/stage_missing.lua
return require "lib.trained_scopes"
