#!/bin/sh
# compress.sh -- gradients sent as bf16 and as bytes: half and a quarter of
# what is sent, nearly the same training, and checkpoints that any plan reads.
. "$(dirname "$0")/lib.sh"
quick
"$tool" idx data 512 12 12

# trained WORD [ARGS...]: 40 steps on two ranks in WORD.
trained() {
    word=$1; shift
    compile mlp "$word.bin" --ranks 2 -P compress="$word" &&
        ranks 2 "$word.bin" train --data data --steps 40 --save-every 20 \
            --seed 3 --out "$word" "$@"
}
sent() { sed -n 's/.*sends \([0-9.]*\) MB.*/\1/p' log; }
last() { field loss "$1/metrics.jsonl" | tail -1; }
# at_most WORD SHARE: of the bytes, for the same loss within 2 %.
at_most() {
    if ! trained "$1"; then not_ok "$1 trains" "exit $rc"; return; fi
    l=$(last "$1")
    "$dpc" sim "$root/models/mlp.lua" --ranks 2 -P compress="$1" > log 2>&1
    b=$(sent)
    note "$1: loss $l of $plain, sends $b of $bytes MB"
    if holds "$l > $plain * 0.98 && $l < $plain * 1.02 && $l != $plain"; then
        ok "$1: trains as well"
    else not_ok "$1: trains as well" "loss $l, plain $plain"; fi
    if holds "$b <= $2 * $bytes"; then ok "$1: sends $2 of the bytes"
    else not_ok "$1: sends $2 of the bytes" "$b of $bytes MB"; fi
}

trained none || not_ok "plain sums train" "exit $rc"
plain=$(last none)
"$dpc" sim "$root/models/mlp.lua" --ranks 2 > log 2>&1
bytes=$(sent)
at_most bf16 0.52
at_most int8 0.27

# Residuals are of one plan: they go on under it, and begin anew elsewhere.
end=ckpt/step-00000040 name="what stays is saved: the same bits go on"
mkdir -p half/ckpt && cp -r int8/ckpt/step-00000020 half/ckpt
ranks 2 int8.bin train --data data --steps 40 --seed 3 --out half
if [ "$rc" = 0 ] && grep -q '"residual"' half/$end/dpc.json &&
        cmp half/$end/model.safetensors int8/$end/model.safetensors > log &&
        cmp half/$end/state-00002-of-00002.safetensors \
            int8/$end/state-00002-of-00002.safetensors >> log; then ok "$name"
else not_ok "$name" "exit $rc, or they differ"; fi
ranks 2 none.bin train --data data --steps 70 --seed 3 --out int8
exits 0 "a plan without residuals reads the checkpoint" "step 70/70"
ranks 2 bf16.bin train --data data --steps 80 --seed 3 --out int8
exits 0 "one with residuals reads one without" "step 80/80"

plan() {
    echo "return { mesh = { { \"dp\", 2 } }, leaf = {}, $1 }" > plan.lua
    run "$dpc" compile "$models/mlp.lua" --ranks 2 --plan plan.lua -o no
}
plan 'compress = "int4"'
exits 1 "a word that there is not" \
    'compress: there are none, bf16 and int8, not "int4"'
plan 'compress = { tp = "int8" }'
exits 1 "an axis that there is not" 'compress: the mesh has no axis .*"tp"'
plan 'compress = 8'
exits 1 "a number" 'not "8"'
plan 'compress = "bf16", reduce = "each"'
exits 1 "in each turn" 'reduce = "each" sums in each turn; take "late"'
plan 'compress = "bf16", exact = true'
exits 1 "exactly" 'compress: rounded sums are not the same'
