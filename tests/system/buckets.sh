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

# An edit model draws each of its sizes.
quick
printf '{"in_channels": 16, "out_channels": 4, "num_layers": 1,
"attention_head_dim": 8, "num_attention_heads": 1, "joint_attention_dim": 4,
"axes_dims_rope": [4, 2, 2]}' > c.json
"$tool" array reference1.npy f4 1 4 2 2 && "$tool" array text.npy f4 1 3 4 &&
    "$tool" array text_mask.npy u1 1 3
"$dpc" compile "$root/models/qwen_image/edit.lua" --config c.json -o edit \
    -D text=3 -D buckets=16x16+16x16,16x32+16x16 > log 2>&1 ||
    { not_ok "an edit model of two sizes compiles" "exit $?"; exit; }
draw() {
    ranks 1 edit "$1" --resume none --steps 2 --output "$2=drawn.npy" \
        --data reference1.npy,text.npy,text_mask.npy
}
draw sample latents
exits 0 "sample draws the first size"
grep -aq '(1,4,2,2,)' drawn.npy || not_ok "the first size" "$(head -c 99 drawn.npy)"
draw sample-16x32-16x16 latents.16x32
exits 0 "sample-SIZE draws another"
grep -aq '(1,4,2,4,)' drawn.npy || not_ok "another size" "$(head -c 99 drawn.npy)"
draw sample-16x32-16x1 latents
exits 2 "a size that is none" "did you mean 'sample-16x32-16x16'"
run ./edit --help
exits 0 "what --steps is of a sampler, and its default" \
    '--steps N .*train until .*; of sample, .*: steps of the sampler .default: 40.'
