#!/bin/sh
# equality.sh -- one global batch, cut over ranks and micro-batches: the same
# training.  Losses of the first five steps agree to 1e-6, the checkpoint after
# 50 to 1e-5 (relative L2, each tensor), the graphs exactly in the field.
. "$(dirname "$0")/lib.sh"
"$tool" idx data 512 12 12
more= data=data

# steps MODEL RANKS MICRO: 50 steps in MODEL-RANKS-MICRO.
steps() {
    k=$1-$2-$3
    compile "$1" "$k.bin" --ranks "$2" --micro "$3" $more &&
        ranks "$2" "$k.bin" train --data $data --steps 50 --seed 3 --out "$k"
}

# same MODEL RANKS MICRO: as on one rank in one batch.
same() {
    k=$1-$2-$3 name="$1: $2 ranks, $3 micro-batches"
    if ! steps "$@"; then not_ok "$name train" "exit $rc"; return; fi
    d=$(losses_off "$1-1-1" "$k" 1 5)
    t=$("$tool" diff "$1-1-1/ckpt/step-00000050" "$k/ckpt/step-00000050")
    note "$1 ranks=$2 micro=$3: losses $d, tensors $t"
    if holds "$d <= 1e-6"; then ok "$name: losses"
    else not_ok "$name: losses" "$d apart"; fi
    if holds "${t%% *} <= 1e-5"; then ok "$name: tensors"
    else not_ok "$name: tensors" "$t apart"; fi
}

# digest MODEL RANKS MICRO: digests of all results and new leaves.
digest() {
    "$dpc" eval "$models/$1.lua" --field --entry train -D side=6 \
        -D batch=16 --ranks "$2" --micro "$3" > "$1-$2-$3.field" 2> log &&
        test -s "$1-$2-$3.field"
}

exact() {
    name="$1: $2 ranks, $3 micro-batches equal one rank in the field"
    if ! digest "$@"; then not_ok "$name" "no digests"
    elif cmp -s "$1-1-1.field" "$1-$2-$3.field"; then ok "$name"
    else diff "$1-1-1.field" "$1-$2-$3.field" > log
        not_ok "$name" "$(grep -c '^>' log) differ"; fi
}

# model NAME RANKSxMICRO...
model() {
    m=$1; shift
    if ! steps "$m" 1 1; then not_ok "$m: one rank trains" "exit $rc"; return; fi
    "$dpc" eval "$models/$m.lua" --field --entry train -D side=6 -D batch=16 \
        > "$m-1-1.field" 2> log || not_ok "$m: eval" "exit $?"
    for p; do
        same "$m" "${p%x*}" "${p#*x}"
        exact "$m" "${p%x*}" "${p#*x}"
    done
}

# Digests would be no evidence if they did not depend on what is evaluated.
digests_tell() {
    "$dpc" eval "$models/mlp.lua" --field --entry train -D side=6 \
        -D batch=16 --seed 7 > other 2> log
    if [ -s other ] && ! cmp -s other mlp-1-1.field; then
        ok "another seed gives other digests"
    else not_ok "another seed gives other digests" "the same"; fi
}

# shipped NAME RANKSxMICRO: a model of models/dalle2, shrunk, without the field.
shipped() {
    m=$1
    if ! steps "$m" 1 1; then not_ok "$m: one rank trains" "exit $rc"; return; fi
    same "$m" "${2%x*}" "${2#*x}"
}

model mlp 1x2 1x4 2x1 2x2 2x4 4x1 4x2 4x4
model conv 1x4 2x2 4x1
model attn 1x4 2x2 4x1
digests_tell
more="-D size=tiny -D batch=16" data=photos
"$tool" idx photos 256 28 28
models=$root/models/dalle2
shipped clip 2x2
shipped prior 2x2
shipped decoder 2x2
