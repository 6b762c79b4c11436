#!/bin/sh
# auto_pairs.sh -- auto against every shipped partitioner, on 30 pairs of a
# model and a cluster, by simulation.
#
#   ./build.sh auto
#
# A row a pair: the step of auto's plan, that of the quickest shipped
# partitioner as it is without options, and which that is.  auto is never
# slower; the closing line and the exit code say so.  Small networks with large
# batches: the compiler's time goes by the graph, the clock's by the sizes.
set -u
cd "$(dirname "$0")/../.."
dpc=/tmp/fz-autob/dpc
export DPC_HOME="$PWD" root="$PWD"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# step PARTITIONER...: milliseconds of the plan; nothing where there is none.
step() {
    "$dpc" plan $model $where --partitioner "$@" -o "$work/plan.$1" 2>&1 |
        awk 'NR == 2 && NF > 7 && !/do(es)? not fit|refused/ { print $(NF - 5) }'
}

rows() {
    while read -r model; do
        for where in "--ranks 2" "--ranks 4" "--cluster a100-80" \
            "--cluster 4xh100" "--cluster 2x4xl40s" "--cluster 2xb200"; do
            for p in passes/partitioners/*.lua; do
                p=$(basename "$p" .lua)
                { s=$(step "$p"); echo "${s:-none} $p" > "$work/$p"; } &
            done < /dev/null
            wait
            (cd "$work" && cat $(ls "$root/passes/partitioners" |
                sed -n 's/\.lua$//p')) | grep -v none | sort -g | head -1 \
                > "$work/best"
            echo "$model|$where|$(step auto < /dev/null)|$(cat "$work/best")"
        done
    done <<MODELS
models/mlp.lua
tests/models/attn.lua -D batch=4096
models/dalle2/prior.lua -D size=tiny -D batch=8192
models/dalle2/clip.lua -D size=tiny -D batch=4096
models/dalle2/decoder.lua -D size=tiny -D batch=4096
MODELS
}

rows | awk -F'|' '
    BEGIN { printf "%-52s %-20s %10s %10s\n", "model", "cluster", "auto ms",
            "best ms" }
    { split($4, best, " ")
      worse = $3 == "" || $3 > best[1] * 1.000001
      bad += worse; n++
      printf "%-52s %-20s %10s %10s %s%s\n", $1, $2, $3, best[1], best[2],
          worse ? "  auto is slower" : ""
      fflush() }
    END { printf "%d passed, %d failed, 0 skipped\n", n - bad, bad
          exit bad > 0 || n != 30 }'
