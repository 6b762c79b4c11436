#!/bin/sh
# many_ranks.sh -- the edit model in 60 blocks on 1,024 ranks: tensors over 8,
# a pipeline of 16, the batch over 8, 32 turns.  Prints seconds of cores of a
# compile to schedules, and what all checks of these took, in time and memory; 1
# when that is 2 s or more, or 10^9 bytes.  From the top folder, after a build; two minutes, 3 GiB.
set -u
dpc=${BUILD:-build}/dpc dir=$(mktemp -d) || exit 5
trap 'rm -rf "$dir"' EXIT
"$dpc" compile -v models/qwen_image/edit.lua -D batch=256 --recompute none \
    --cluster 128x8xa100-80 --partitioner pipeline -P pp=16 -P tp=8 \
    --micro 32 --emit schedule --emit-dir "$dir" > "$dir/log" 2>&1 ||
    { tail -5 "$dir/log"; exit 1; }
times > "$dir/times"; tail -1 "$dir/times"
sed -n '/ are sound, checked with /p' "$dir/log"
awk '/ are sound, checked with / { m = $(NF - 4); s = $(NF - 1) }
    END { exit !(s != "" && s < 2 && m < 954) }' "$dir/log"
