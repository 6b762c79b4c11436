#!/bin/sh
# weights.sh -- dpc weights: what a run's tensors are, whose they could be, and
# how far two runs part.
. "$(dirname "$0")/lib.sh"
"$tool" idx data 64 12 12
compile mlp bin && ranks 1 bin train --data data --steps 2 --seed 1 --out one &&
    ranks 1 bin train --data data --steps 2 --seed 2 --out two ||
    not_ok "mlp trains" "exit $rc"

run "$dpc" weights ls one
exits 0 "ls names tensors" '^in.w : F32\['
run "$dpc" weights map one "$models/mlp.lua"
exits 0 "map: every param has its tensor" '^in.w : f32\[.* from F32\['
run "$dpc" weights map one "$models/attn.lua"
exits 1 "map: what is missing is named" '^block.mlp.up.w : .* missing' 'but the tensor is' \
    '^[0-9]+ of [0-9]+ params'
run "$dpc" weights diff one one
exits 0 "diff: a run equals itself" '^largest relative distance 0;'
run "$dpc" weights diff one two
exits 6 "diff: two seeds part" '^in.w : F32\[.*\] [0-9.e-]+$'
run "$dpc" weights ls nowhere
exits 1 "no such folder" '^nowhere: error: '
