#!/bin/sh
# exact.sh -- an exact plan gives the same bits on 1, 2, 4 and 8 ranks: the
# checkpoints after 50 steps are byte for byte one.  CLIP couples its batch.
. "$(dirname "$0")/lib.sh"
"$tool" idx data 256 28 28

# bits MODEL RANKS: sums of the two files of the last checkpoint.
bits() {
    k=$1-$2
    "$dpc" compile "$root/models/dalle2/$1.lua" -D size=tiny -D batch=32 \
        --exact --ranks "$2" -o "$k.bin" > log 2>&1 &&
        ranks "$2" "$k.bin" train --data data --steps 50 --out "$k" &&
        cksum < "$k/ckpt/step-00000050/model.safetensors" &&
        cksum < "$k/ckpt/step-00000050/state.safetensors"
}

for model in clip decoder; do
    bits $model 1 > one || { not_ok "$model: exact on 1 rank" "fails"; exit; }
    for n in 2 4 8; do
        if ! bits $model $n > other; then
            not_ok "$model: exact on $n ranks" "exit $rc"
        elif cmp -s one other; then ok "$model: exact on $n ranks"
        else not_ok "$model: exact on $n ranks" "other bits than 1 rank"; fi
    done
done
