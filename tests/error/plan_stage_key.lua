-- dpc verify --plan tests/error/plans/stage_key.lua
return require "lib.trained_scopes"
