#!/bin/sh
# arena.sh -- the arena beside the largest sum of live bytes, and beside what is
# made again; losses do not change.
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

# Blocks made again: half the arena for a quarter of the flops, at most.
"$dpc" compile -v "$root/models/dalle2/decoder.lua" --recompute full \
    --emit schedule --emit-dir out > log 2>&1
again=$(grep "^dpc: train: backward makes" log | tr -d + |
    awk '{ print $8, $12, $15 }')
set -- $again 0 0 0
note "decoder, recompute=full: +$1 % flops, arena $2 of $3 MiB"
if holds "$2 > 0 && $2 <= 0.5 * $3 && $1 <= 25"; then
    ok "decoder: half its arena for <= 25 % flops"
else not_ok "decoder: half its arena for <= 25 % flops" "$again"; fi
grep -q "the arena is fullest at step" log && grep -q " MiB  v.*net.lua:" log \
    || not_ok "compile -v says who lives at the peak" "it does not"

set -- $(sed -n 's/^dpc: train: what was chosen .* takes \(.*\) ms; .* less than \(.*\)/\1 \2/p' log) 0 0
if holds "$2 > 0 && $1 >= $2"; then ok "the choice beside what bounds it"
else not_ok "the choice beside what bounds it" "$1 ms, bound $2"; fi

# The same training whatever is made again.
quick
"$tool" idx data 512 28 28
for word in none full states,activations; do
    what="--recompute $word" most=1e-6
    case $word in states*) what="--recompute none --offload $word" most=0 ;;
    esac
    "$dpc" compile -v "$root/models/dalle2/decoder.lua" -D size=tiny \
        -D batch=8 --ranks 2 $what -o "$word.bin" > log 2>&1
    test $word != states,activations || grep -q "host's arena is fullest" log \
        || not_ok "$what: who lives in the host's arena" "$(cat log)"
    note "$word: $(sed -n 's/^dpc: train: backward //p' log)"
    ranks 2 "$word.bin" train --data idx:data --steps 5 --seed 3 \
        --out "$word" || not_ok "$what trains" "exit $rc"
    field loss "$word/metrics.jsonl" | head -5 > "$word.loss"
    d=$(paste none.loss "$word.loss" | awk '{ d = ($1 - $2) / $1
        d = d < 0 ? -d : d; if (d > most) most = d; n++ }
        END { print n == 5 ? most + 0 : 9 }')
    if holds "$d <= $most"; then ok "$what: losses"
    else not_ok "$what: losses" "$d apart"; fi
done
