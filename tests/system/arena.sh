#!/bin/sh
# arena.sh -- the arena beside the largest sum of live bytes.
. "$(dirname "$0")/lib.sh"

# schedule MODEL [dpc's options]: arena and bound of a training step.
schedule() {
    name=$1; shift
    "$dpc" compile -q "$root/models/dalle2/$name.lua" "$@" --emit schedule \
        --emit-dir out > log 2>&1
    sed -n 's/^sched arena=\([0-9]*\).* lower=\([0-9]*\).*/\1 \2/p' \
        "out/$name.train.schedule.ir" | head -1
}
for plan in "decoder --ranks 2" "decoder --micro 2" \
    "decoder --ranks 2 --micro 2" "prior --ranks 2 --micro 2" \
    "clip --ranks 2 --partitioner zero"; do
    set -- $(schedule $plan --dtype bf16)
    holds "$1 <= 1.02 * $2" && ok "$plan, bf16: arena within 2 %" \
        || not_ok "$plan, bf16: arena within 2 %" "$1 of $2"
done
