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
dpc=$PWD/${BUILD:-build}/dpc
export DPC_HOME="$PWD"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# step PARTITIONER...: milliseconds of the plan; nothing where there is none.
step() {
    "$dpc" plan $model $where --partitioner "$@" -o "$work/plan.$1" 2>&1 |
        awk 'NR == 2 && NF > 7 && $(NF - 5) ~ /^[0-9.]+$/ &&
            !/do(es)? not fit/ { print $(NF - 5) }'
}

# row MODEL CLUSTER: a line of the table.
row() {
    model=$1 where=$2
    for p in passes/partitioners/*.lua; do
        p=$(basename "$p" .lua)
        { s=$(step "$p") && [ -n "$s" ] && echo "$s $p" > "$work/$p"; } &
    done
    wait
    best=$(find "$work" -type f ! -name 'plan.*' -exec cat {} + | sort -g |
        head -1)
    rm -f "$work"/*
    echo "$model|$where|$(step auto)|$best" | awk -F'|' '{
        split($4, best, " ")
        worse = $3 == "" || $3 > best[1] * 1.000001
        printf "%-52s %-20s %10s %10s %s%s\n", $1, $2, $3, best[1], best[2],
            worse ? "  auto is slower" : "" }'
}

rows() {
    printf '%-52s %-20s %10s %10s\n' model cluster 'auto ms' 'best ms'
    while read -r model; do
        for where in "--ranks 2" "--ranks 4" "--cluster a100-80" \
            "--cluster 4xh100" "--cluster 2x4xl40s" "--cluster 2xb200"; do
            row "$model" "$where" < /dev/null
        done
    done <<MODELS
models/mlp.lua
tests/models/attn.lua -D batch=4096
models/dalle2/prior.lua -D size=tiny -D batch=8192
models/dalle2/clip.lua -D size=tiny -D batch=4096
models/dalle2/decoder.lua -D size=tiny -D batch=4096
MODELS
}

table=$(mktemp)
rows | tee "$table"
bad=$(grep -c 'auto is slower' "$table")
n=$(($(wc -l < "$table") - 1))
rm -f "$table"
echo "$((n - bad)) passed, $bad failed, 0 skipped"
test $bad = 0 && test $n = 30
