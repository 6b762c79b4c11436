-- dpc eval --plan tests/error/plans/stage_words.lua
return require "lib.scopes"
