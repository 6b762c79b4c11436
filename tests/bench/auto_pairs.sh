#!/bin/sh
# auto_pairs.sh -- auto against every shipped partitioner, on 30 pairs of a
# model and a cluster, by simulation.
#
#   tests/bench/auto_pairs.sh
#
# A row a pair: the step of auto's plan, that of the quickest shipped
# partitioner as it is without options, and which that is.  auto is never
# slower; the exit code says so.
set -eu
cd "$(dirname "$0")/../.."
dpc=$PWD/build/dpc
export DPC_HOME="$PWD"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# step PARTITIONER...: milliseconds of the plan; nothing where there is none.
step() {
    "$dpc" plan $model $where --partitioner "$@" -o "$work/plan" 2>&1 |
        awk 'NR == 2 && !/does not fit|refused/ { print $(NF - 5) }'
}

for model in models/mlp.lua models/dalle2/clip.lua models/dalle2/prior.lua \
    models/dalle2/decoder.lua models/dalle2/judge.lua; do
    for where in "--ranks 2" "--ranks 4" "--cluster a100-80" \
        "--cluster 4xh100" "--cluster 2x4xl40s" "--cluster 2xb200"; do
        for p in passes/partitioners/*.lua; do
            p=$(basename "$p" .lua)
            s=$(step "$p") && [ -n "$s" ] && echo "$s $p"
        done | sort -g | head -1 > "$work/best"
        echo "$model|$where|$(step auto)|$(cat "$work/best")"
    done
done | awk -F'[| ]' '
    BEGIN { printf "%-26s %-20s %10s %10s\n", "model", "cluster", "auto ms",
            "best ms" }
    { n++; if ($4 == "" || $4 > $5 * 1.000001) bad++
      printf "%-26s %-20s %10s %10s %s\n", $1, $2 " " $3, $4, $5, $6 }
    END { printf "%d pairs, auto is slower in %d\n", n, bad; exit bad > 0 }'
