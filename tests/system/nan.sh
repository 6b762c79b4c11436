#!/bin/sh
# nan.sh -- --nan stop names the one op that is to blame, in the midst of a
# fused kernel, by its line in the model.
. "$(dirname "$0")/lib.sh"
"$tool" idx data 512 12 12

# blames TRAP OP WHAT RANKS MICRO: the model's line that ends in TRAP's name.
blames() {
    name="$1, $4 ranks, $5 turns: ${2:-the leaf} is blamed"
    compile trap "$1.bin" -D "trap=$1" --ranks "$4" --micro "$5" ||
        { not_ok "$name" "does not compile"; return; }
    line=$(grep -n "TRAP $1\$" "$models/trap.lua" | cut -d: -f1)
    ranks "$4" "$1.bin" train --data data --steps 8 --bad-step 3 --nan stop
    exits 7 "$name" "trap.lua:$line: $2.*$3" "trap: error: step [34] is not"
    n=$(grep -c '^note: ' log)
    if [ "$n" = 1 ]; then ok "$name once"; else not_ok "$name once" "$n"; fi
}
blames log log "first NaN" 1 2
blames log log "first NaN" 2 1
blames row sqrt "first NaN" 1 1
blames overflow exp "first infinity" 2 2
blames fold move "first infinity" 1 2
blames state '' "shadow: not finite before the step" 1 1

# A rate that spoils the weights leaves the checkpoints of before.
compile mlp wild && ranks 1 wild train --data data --steps 3 --save-every 1 \
    --lr 1e-3 --out wild.run && ranks 1 wild train --data data --steps 12 \
    --save-every 1 --lr 1e38 --warmup 0 --out wild.run
exits 7 "spoilt weights are not saved over sound ones" "not finite" \
    "from an earlier checkpoint"
if ls wild.run/ckpt | grep -q 'step-00000003'; then
    ok "the last sound checkpoint is there"
else not_ok "the last sound checkpoint is there" "$(ls wild.run/ckpt)"; fi

# Loaded weights that hold an infinity: no rate is to blame for it.
compile trap base.bin -D trap=base && ranks 1 base.bin train --data data \
    --steps 1 --out begun && for part in base out; do
    "$dpc" weights convert begun $part.safetensors --prefix $part > log 2>&1 &&
    head -c -4 $part.safetensors > spoilt.$part &&
    printf '\0\0\200\177' >> spoilt.$part &&
    mv spoilt.$part $part.safetensors
done || not_ok "weights to spoil" "exit $?"
for part in base out; do for how in "stop --steps 3" "skip --steps 3 --out $part"
do
    ranks 1 base.bin train --data data --nan $how \
        --init-from $part:=$part.safetensors:over
    exits 7 "$part, ${how%% *}: weights not finite as loaded" \
        "^trap: error: '$part\.[wb]' .*before the first step: the weights as loaded"
    ! grep -q "lower the rate" log || not_ok "$part: the rate is not blamed" ""
done; done
