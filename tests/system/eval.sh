#!/bin/sh
# eval.sh -- evaluation: between steps of training and by itself.
. "$(dirname "$0")/lib.sh"
"$tool" idx data 512 12 12
"$tool" idx other 256 12 12
compile mlp one.bin && compile mlp two.bin --ranks 2 --micro 2 ||
    { not_ok "mlp compiles" "exit $?"; exit 0; }

ranks 2 two.bin train --data data --steps 60 --eval-every 20 --save-every 25 --keep 1 --out out
exits 0 "--eval-every evaluates" "eval  step 20  accuracy [0-9.]+  loss [0-9.]+" "eval  step 60  "
if [ -d "out/ckpt/$(cat out/ckpt/best)" ] && [ "$(cat out/ckpt/latest)" = step-00000060 ]; then
    ok "the best and the last checkpoint are kept"
else not_ok "the best and the last checkpoint are kept" "$(ls out/ckpt | tr '\n' ' ')"; fi
if [ ! -d out/ckpt/step-00000025 ]; then ok "--keep 1 removes older ones"
else not_ok "--keep 1 removes older ones" "step-00000025 is there"; fi
inside=$(sed -n 's/.*"event":"eval","step":60,.*"loss":\([^,}]*\).*/\1/p' out/metrics.jsonl)

# apart NAME A B: two losses agree.
apart() {
    d=$(awk "BEGIN { d = ($2 - $3) / $2; print d < 0 ? -d : d }")
    note "$1: $d"
    if [ "$3" ] && holds "$d <= 1e-6"; then ok "$1"; else not_ok "$1" "$2 and $3"; fi
}
loss() { grep -h '"loss"' log | field loss /dev/stdin; }

ranks 1 one.bin eval --data data --out out --json
exits 0 "eval takes the newest checkpoint" "\"step\":60" "resume  out/ckpt/step-00000060"
alone=$(loss)
apart "evaluation in training and by itself agree" "$inside" "$alone"
ranks 2 two.bin eval --data data --out out --json
apart "evaluation on two ranks and on one agree" "$alone" "$(loss)"
ranks 1 one.bin eval --data data --init-from out --json
apart "--init-from brings the averages along" "$alone" "$(loss)"
ranks 1 one.bin eval --data data --val-data other --out out --json
b=$(loss)
if [ "$b" ] && [ "$b" != "$alone" ]; then ok "--val-data goes before --data"
else not_ok "--val-data goes before --data" "$alone and $b"; fi
ranks 1 one.bin eval --data data
exits 1 "eval without parameters" "'eval' needs parameters; give --out DIR"
ranks 1 one.bin train --data data --steps 40 --out out
exits 0 "a run that is over stays as it is" "step 60 of 40: nothing to do"
ranks 1 one.bin train --data data --steps 5 --init-from nowhere
exits 1 "--init-from nothing" "nowhere: error: No such file"

# A file's numbers follow a head of 128 bytes: 4 x 3 x 6 x 6 floats.
numbers() { tail -c 1728 "$1"; }
compile outputs o1.bin && compile outputs o2.bin --ranks 2 --micro 2
ranks 1 o1.bin eval --data data --output y=y.npy --output flat=flat.npy
exits 0 "eval writes outputs"
numbers y.npy > a && numbers flat.npy > b
if cmp a b; then ok "outputs are row-major, whatever the plan prefers"
else not_ok "outputs are row-major, whatever the plan prefers" "two orders"; fi
ranks 2 o2.bin eval --data data --output y=y2.npy
if cmp y.npy y2.npy; then ok "two ranks write what one writes"
else not_ok "two ranks write what one writes" "exit $rc"; fi
ranks 1 o1.bin eval --data data --output z=z.npy
exits 1 "eval names an output that it lacks" "'--output z=z.npy': 'eval' has no such output"
ranks 1 o1.bin eval --data data --batches 0
exits 2 "a mean over no batches" "'--batches 0': a mean wants one"
ranks 1 one.bin train --data data --lr nan --out nan
exits 2 "a rate that is no number" "'--lr nan': not a number"
