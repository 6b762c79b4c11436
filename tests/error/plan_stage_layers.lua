-- dpc verify --ranks 4 --partitioner pipeline
return require "lib.trained_scopes"
