-- dpc eval --plan tests/error/plans/stage_chunk.lua
return require "lib.scopes"
