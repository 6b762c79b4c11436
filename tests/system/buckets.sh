#!/bin/sh
# buckets.sh -- several sizes in one binary: each step takes the program that its
# data fit, each as often as it has batches, and a resumed run goes on alike.
. "$(dirname "$0")/lib.sh"
mkdir -p low high && "$tool" npy low/x.npy 4 6 41 &&
    "$tool" npy high/x.npy 6 6 120 && "$tool" npy odd.npy 5 6 40

compile sizes sizes --ranks 2 || { not_ok "two sizes compile" "exit $?"; exit; }
data="--data low/x.npy --more-data high/x.npy --save-every 20"

ranks 2 sizes train $data --steps 40 --out whole
four=$(field rows whole/metrics.jsonl | grep -c '^4')
six=$(field rows whole/metrics.jsonl | grep -c '^6')
if [ $rc = 0 ] && [ $((four + six)) = 40 ] && [ "$four" -ge 4 ] &&
   [ "$four" -le 18 ]; then ok "each size as often as it has batches"
else not_ok "each size as often as it has batches" "$four and $six of 40"; fi

ranks 2 sizes train $data --steps 20 --out broken
ranks 2 sizes train $data --steps 40 --out broken
if [ $rc = 0 ] && cmp -s whole/ckpt/step-00000040/state.safetensors \
    broken/ckpt/step-00000040/state.safetensors
then ok "a resumed run takes the same sizes"
else not_ok "a resumed run takes the same sizes" "other bits"; fi

ranks 2 sizes eval --data low/x.npy --more-data high/x.npy --out whole --json
exits 0 "an evaluation is of all sizes" '"rows":5.5' '"samples_left_out":1' \
    'note: 1 of 161 samples left out: fewer than a batch'
ranks 2 sizes train $data --steps 2 --eval-every 1 --out between
exits 0 "an evaluation between steps, too" 'eval  step 2 .* rows 5.5'
ranks 2 sizes train --data low/x.npy --more-data low/x.npy --steps 1 --out odd
exits 1 "two data sets of one size" "'train-4' has its data already"

cp odd.npy low/x.npy
ranks 2 sizes train $data --steps 1 --out odd
exits 1 "data of no size is refused" "wants rows of u8\[[46],6\]"
