#!/bin/sh
# spatial.sh -- rows of pictures on ranks of their own: losses of five steps to
# 1e-6 of one rank's, and what cannot be in parts is told.
. "$(dirname "$0")/lib.sh"
quick

# trains MODEL NAME RANKS OPTION...
trains() {
    lua=$1 name=$2 n=$3; shift 3
    "$dpc" compile "$lua" -o "$name.bin" --ranks "$n" "$@" > log 2>&1 &&
        ranks "$n" "$name.bin" train --data data --steps 5 --seed 3 \
            --out "$name"
}

# same MODEL RANKS OPTION...: as the run one.
same() {
    lua=$1 n=$2; shift 2
    claim="${lua##*/} on $n ranks $*"
    rm -rf other
    if ! trains "$lua" other "$n" --partitioner spatial "$@"; then
        not_ok "$claim" "exit $rc"; return
    fi
    d=$(losses_off one other 1 5)
    note "$claim: losses part by $d"
    if holds "$d <= 1e-6"; then ok "$claim"
    else not_ok "$claim" "losses part by $d"; fi
}

"$tool" idx data 256 12 12
conv=$models/conv.lua
trains "$conv" one 1 || not_ok "conv on one rank" "exit $rc"
same "$conv" 4 --micro 2 -P sp=2
same "$conv" 5                          # 12 rows, 7 and 4 behind strides
"$tool" idx data 256 28 28
decoder="$root/models/dalle2/decoder.lua"
tiny="-D size=tiny -D batch=8"
rm -rf one
trains "$decoder" one 1 $tiny || not_ok "decoder on one rank" "exit $rc"
same "$decoder" 3 $tiny                 # 28 rows, 14, 7

# Rows are on their way while something else is computed, by the clock: the
# share of the halos' time in which role 0 computes.
"$dpc" sim "$decoder" -D batch=8 --ranks 2 --partitioner spatial \
    --trace trace.json > /dev/null
share=$(sed -n 's/.*"X", "pid": 0, "tid": \([01]\), "ts": \([0-9.]*\), "dur": \([0-9.]*\), "name": "\([^ "]*\).*/\1 \2 \3 \4/p' trace.json |
    awk '$1 == 0 { from[n] = $2; to[n++] = $2 + $3 }
        $1 == 1 && $4 == "halo" { a[m] = $2; b[m++] = $2 + $3; all += $3 }
        END {
            for (i = 0; i < m; i++)
                for (k = 0; k < n; k++) {
                    x = from[k] > a[i] ? from[k] : a[i]
                    y = to[k] < b[i] ? to[k] : b[i]
                    hid += y > x ? y - x : 0
                }
            print all ? hid / all : 0
        }')
note "halos beside computing: $share of their time"
if holds "$share >= 0.6"; then ok "halos travel beside computing"
else not_ok "halos travel beside computing" "$share of their time"; fi

run "$dpc" plan "$conv" --ranks 13 --partitioner spatial
exits 4 "more ranks than rows" "sp=13: no convolution's picture has rows" \
    "the most rows are 12; the nearest plan that works: --ranks 12 -P sp=12"
run "$dpc" plan "$conv" --ranks 4 --partitioner spatial -P rows=4
exits 4 "parts that are too small" "parts of 4 or more; .* --ranks 3 -P sp=3"
run "$dpc" plan "$conv" --ranks 4 --partitioner spatial -P rows=0
exits 1 "parts of nothing" "rows is 0; a part has one row or more"
run "$dpc" plan "$root/models/mlp.lua" --ranks 2 --partitioner spatial
exits 4 "a model without pictures" "the most rows are 0; no number of parts"
