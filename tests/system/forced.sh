#!/bin/sh
# forced.sh -- step by step from one state: before each of 50 steps, plans of
# several ranks and micro-batches load what one rank had there.  Every
# gradient, moment, average and weight that the step makes is within 1e-5
# (relative L2) of that rank's.
#
# What cancels is apart: the gradient of a bias before a norm, or of CLIP's
# sharpness, is a small difference of large sums, and its error is that of the
# sums.  So single numbers, and tensors of less than 1 % of the norm of their
# kind (all gradients, all first moments, ...), are held to 1e-5 of that norm.
#
# In bf16 a sum in another order may be rounded the other way, which is one part
# in 256 of a number; the numbers of a tensor err apart from each other, and
# errors add up over the layers: the bound is 2^-6.
. "$(dirname "$0")/lib.sh"
"$tool" idx data 256 28 28
mkdir m && cp "$root"/models/dalle2/*.lua "$models/forced.lua" m/ && models=m
steps=50 rc=0

# plan MODEL RANKS MICRO OUT OPTIONS...: trains, saving each step.
plan() {
    m=$1 r=$2 k=$3 out=$4; shift 4
    compile forced "$out.bin" -D "model=$m" -D size=tiny -D batch=16 \
        --dtype "$dtype" --ranks "$r" --micro "$k" &&
        ranks "$r" "$out.bin" train --data data --steps $steps --seed 3 \
            --save-every 1 --keep 0 --quiet --out "$out" "$@"
}

# apart RUN RUN: lines of "tensor whose, of its kind whose, step" in far.
apart() {
    for i in $(seq $steps); do
        s=$(printf 'ckpt/step-%08d' "$i")
        echo "$("$tool" apart "$1/$s" "$2/$s") $i"
    done > far
}

# farthest COLUMN: over all steps; how far, whose, at which step.
farthest() {
    awk -v c="$1" '!($c + 0 <= most) { most = $c + 0; who = $(c + 1)
        step = $5 } END { print most + 0, who, step, NR }' far
}

# within NAME BOUND VALUE...
within() {
    if [ "$6" = $steps ] && holds "$3 <= $2"; then ok "$1"
    else not_ok "$1" "$3 of $4 at step $5, wanted $2"; fi
}

# forced MODEL BOUND RANKSxMICRO...
forced() {
    m=$1 bound=$2 one=$1-$dtype; shift 2
    plan "$m" 1 1 "$one" ||
        { not_ok "$one: one rank trains" "exit $rc"; return; }
    for p; do
        name="$m, $dtype, ${p%x*} ranks, ${p#*x} turns, forced"
        if ! plan "$m" "${p%x*}" "${p#*x}" "$one-$p" --teacher "$one"; then
            not_ok "$name" "exit $rc"; continue
        fi
        apart "$one" "$one-$p"
        own=$(farthest 1) all=$(farthest 3)
        note "$name: $own; of its kind $all"
        within "$name: tensors" "$bound" $own
        within "$name: what cancels" "$bound" $all
        rm -rf "$one-$p"
    done
}

dtype=f32
forced clip 1e-5 2x2
forced prior 1e-5 2x1
forced decoder 1e-5 1x4
dtype=bf16
forced decoder 0.015625 2x2
