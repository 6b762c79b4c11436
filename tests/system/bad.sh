#!/bin/sh
# bad.sh -- what is wrong is told once: what, where, both values, what to do;
# by the exit code of its kind; and nothing that was there is lost.
. "$(dirname "$0")/lib.sh"
"$tool" idx data 512 12 12
compile mlp one.bin && compile mlp two.bin --ranks 2 ||
    { not_ok "mlp compiles" "exit $?"; exit 0; }

train() { ranks 1 one.bin train --steps 5 --out out "$@"; }

# told_once NAME: the last run has one line of error from us.
told_once() {
    k=$(grep -c ': error: ' log)
    if [ "$k" = 1 ]; then ok "$1 is told once"
    else not_ok "$1 is told once" "$k times"; fi
}

# ---- data ----
train --data nowhere
exits 1 "no data" "nowhere: error: .*No such file.*give an existing"
ranks 2 two.bin train --steps 5 --data nowhere
exits 1 "no data, two ranks" "nowhere: error: "
told_once "no data, two ranks,"
train
exits 1 "an input without a source" "mlp.lua:[0-9]+: error: input 'image'" "--data SPEC or --input image=FILE.npy"
mkdir cut && cp data/* cut/ && head -c 30000 data/train-images-idx3-ubyte > cut/train-images-idx3-ubyte
train --data cut
exits 1 "a truncated IDX" "cut/train-images-idx3-ubyte: error: .*73728 bytes.*29984.*get the file again"
rm cut/train-images-idx3-ubyte
gzip -c data/train-images-idx3-ubyte | head -c 20000 > cut/train-images-idx3-ubyte.gz
train --data cut
exits 1 "a truncated IDX.gz" "cut/train-images-idx3-ubyte.gz: error: .*73728 bytes.*gzip stream ends early"
"$tool" npy image.npy 9 9 16
train --data data --input image=image.npy
exits 1 "--input of another shape" "mlp.lua:[0-9]+: error: input 'image'.*u8\[12,12\].*image.npy.*u8\[9,9\]; give rows"
train --data image.npy
exits 1 "data of another shape" "mlp.lua:[0-9]+: error: input 'image'.*u8\[12,12\].*u8\[9,9\]"
train --data data --input imgae=image.npy
exits 1 "--input of no input" "'--input imgae=image.npy'.*NAME=FILE.npy"

# ---- options ----
train --data data --setps 5
exits 2 "an unknown option" "unknown option '--setps'; did you mean '--steps'"
ranks 1 one.bin trian
exits 2 "an unknown command" "unknown command 'trian'; did you mean 'train'"
train --data data --lr fast
exits 2 "no number" "'--lr fast': not a number"
train --data data --nan maybe
exits 2 "no policy" "'--nan maybe': wanted skip or stop"

# ---- processor ----
compile mlp narrow.bin --dtype bf16
run env DNNL_MAX_CPU_ISA=AVX2 ./narrow.bin train --data data --steps 5
exits 5 "bf16 without AVX-512" "no products in bf16 .*--dtype f32"

# ---- world ----
ranks 1 two.bin train --data data --steps 5
exits 1 "too few ranks" "ranks: the plan is for 2 .*but 1 came; .*mpirun -n 2"
ranks 3 two.bin train --data data --steps 5
exits 1 "too many ranks" "ranks: the plan is for 2 .*but 3 came"
told_once "too many ranks"

# dpc run tells it without mpirun's own words, and keeps what each rank said.
run "$dpc" run -n 2 --log-dir logs ./two.bin train --data nowhere
exits 1 "dpc run, on no data" "nowhere"
if ! grep -q "Primary job\|mpirun detected" log && [ -f logs/1/rank.1/stderr ] \
    && cat logs/1/rank.?/stderr | grep -q nowhere; then ok "--log-dir"
else not_ok "--log-dir" "$(cat log; find logs)"; fi
run "$dpc" run -n 2 --log-dir two.bin ./two.bin train --data data
exits 5 "--log-dir that is a file" "two.bin: error: no folder for logs"

# apart ARGS: the second of two ranks gets other ones.
apart() { run mpirun -n 1 ./two.bin train --data data --steps 5 : -n 1 ./two.bin train "$@"; }
"$tool" idx fewer 256 12 12
apart --data fewer --steps 5
exits 1 "ranks with other data" "ranks: not all have the same data .*start all of them alike"
told_once "ranks with other data"
apart --data data --steps 5 --lr 0.1
exits 1 "ranks with other options" "ranks: not all have the same options"
compile mlp other.bin --ranks 2 --partitioner zero
run mpirun -n 1 ./two.bin train --data data --steps 5 : \
    -n 1 ./other.bin train --data data --steps 5
exits 1 "a rank with another binary" "ranks: not all have the same binary"
told_once "a rank with another binary"
apart --data nowhere --steps 5
exits 1 "one rank without data" "nowhere: error: "
told_once "one rank without data"

# ---- checkpoints ----
rm -rf out
ranks 1 one.bin train --data data --steps 30 --save-every 10 --out out --quiet
damage() { printf X | dd of="out/ckpt/$1/model.safetensors" bs=1 seek=9000 conv=notrunc 2> dd; }
damage step-00000030
ranks 1 one.bin train --data data --steps 31 --out out
exits 0 "a damaged checkpoint is passed over" "step-00000030/model.safetensors: error: damaged: xxh3 is [0-9a-f]+, it was saved with [0-9a-f]+" "resume  out/ckpt/step-00000020, step 20"
damage step-00000031
ranks 1 one.bin train --data data --steps 40 --out out --resume latest
exits 1 "a damaged checkpoint that was asked for" "step-00000031/model.safetensors: error: damaged"
ranks 1 one.bin train --data data --steps 40 --out out --resume step-7
exits 1 "a checkpoint that is not there" "out/ckpt/step-00000007: error: No such file"
compile conv other.bin
ranks 1 other.bin train --data data --steps 40 --out out
exits 1 "another model's checkpoint" "model \"mlp\", this program trains \"conv\"; --init-from"

# ---- disk ----
ranks 1 one.bin train --data data --steps 3 --out /proc/out
exits 5 "--out where none can be" "/proc/out: error: --out: "
mkdir full
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=300k tmpfs full 2> /dev/null; then
    trap 'umount full; test -n "${DPC_TEST_TMP:-}" || rm -rf "$top"' EXIT
    ranks 1 one.bin train --data data --steps 50 --save-every 10 --keep 0 --out full
    exits 5 "a full disk" "full/ckpt: error: checkpoint: needs [0-9]+ bytes, the disk has [0-9]+ free; older checkpoints are intact"
    kept=$("$tool" hash full/ckpt/step-00000010)
    ranks 1 one.bin train --data data --steps 11 --out full/new --resume full/ckpt/step-00000010 --quiet
    if [ "$kept" ] && [ "$(cat full/ckpt/latest)" = step-00000010 ]; then
        ok "a full disk loses no older checkpoint"
    else not_ok "a full disk loses no older checkpoint" "latest is $(cat full/ckpt/latest)"; fi
    rm -rf full/*
    ranks 2 two.bin train --data data --steps 50 --save-every 10 --keep 0 --out full
    exits 5 "a full disk, two ranks" "full/ckpt: error: checkpoint: needs"
    told_once "a full disk, two ranks,"
else
    skip "a full disk" "only root may mount a small one"
fi

# ---- what to go on from ----
rm -rf out lone
ranks 1 one.bin train --data data --steps 20 --save-every 10 --keep 0 --out out
ranks 1 one.bin train --data data --steps 21 --out lone --resume out
exits 0 "--resume takes a run's folder: the newest" "resume  out/ckpt/step-00000020, step 20"
damage step-00000010; damage step-00000020
ranks 1 one.bin train --data data --steps 30 --out out
exits 1 "only damaged checkpoints are no fresh start" "out/ckpt: error: checkpoint: there are 2, and none is whole.*--resume none"
ranks 1 one.bin train --data data --steps 30 --out out --resume none
exits 0 "--resume none starts anew" "step 30/30"

# ---- rows ----
"$tool" idx few 8 12 12
ranks 1 one.bin train --data few --steps 3
exits 1 "fewer samples than a batch" "few: error: data: a batch takes [0-9]+ samples but there are 8"
"$tool" npy rows.npy 12 12 100
ranks 1 one.bin train --data data --steps 3 --input image=rows.npy
exits 1 "rows that fill no whole step" "mlp.lua:[0-9]+: error: input 'image' takes [0-9]+ rows a step but 'rows.npy' has 100"

cat > words.lua <<'END'
local nn, optim = require "nn", require "optim"
local function train()
  local id = dpc.input("label", { 16 }, "u8"):cast("i32")
  local w = dpc.param("w", { 7, 4 }, { init = nn.normal(1) }):take(id)
  local loss = (w * w):move("bc ->")
  local out = optim.step(loss, { steps = 9 })
  out.loss = loss
  return out
end
return { entries = { train = train } }
END
"$dpc" compile words.lua -o words.bin > log 2>&1 || not_ok "words compiles" "exit $?"
ranks 1 words.bin train --data data --steps 3 --bad-data 0
exits 1 "an index outside of a table" "data: error: data: sample [0-9]+: \"label\" holds [7-9], but input 'label' \(words.lua:3\) indexes a table of 7 rows in words.lua:4; corrupt samples so far: 1, allowed: 0"
told_once "an index outside of a table"
ranks 1 words.bin train --data data --steps 3
exits 0 "indices outside of a table are replaced, within a budget" "step 3/3" "warning: another sample takes its place; 1 of at most 100"
"$dpc" compile words.lua -o alike.bin --ranks 2 --partitioner replicate > log 2>&1
ranks 2 alike.bin train --data data --steps 3
n=$(grep -c 'takes its place; 1 of' log)
if [ $rc = 0 ] && [ "$n" = 1 ]; then ok "ranks that read the same rows name a bad one once"
else not_ok "ranks that read the same rows name a bad one once" "exit $rc, $n times"; fi
"$tool" npy beyond.npy 0 0 16
ranks 1 words.bin train --input label=beyond.npy --steps 3
exits 1 "an index outside of a table, given" "words.lua:3: error: input 'label': row [0-9]+ of the batch holds [7-9], but it indexes a table of 7 rows in words.lua:4"

# ---- classes ----
sed 's/, 10)/, 7)/g' "$models/mlp.lua" > seven.lua
"$dpc" compile seven.lua -o seven.bin > log 2>&1 || not_ok "seven compiles" "exit $?"
ranks 1 seven.bin train --data data --steps 3 --bad-data 0
exits 1 "a label outside of the classes" "\"label\" holds [7-9], but input 'label' \(seven.lua:[0-9]+\) indexes a table of 7 rows in seven.lua:[0-9]+"

# ---- outputs ----
ranks 1 one.bin train --data data --steps 3 --output loss=loss.npy --out written
exits 0 "train --output" "step 3/3"
if [ -s loss.npy ]; then ok "train writes outputs of its last step"
else not_ok "train writes outputs of its last step" "no file"; fi
ranks 1 one.bin train --data data --steps 3 --output lost=loss.npy
exits 1 "train --output of no output" "'--output lost=loss.npy': 'train' has no such output"

rc=0; ./one.bin eval --data data --out written --json > /dev/full 2> log || rc=$?
exits 5 "results that cannot be written" "stdout: error: cannot be written"
ranks 1 one.bin train --data data --steps 3 --resume none --metrics /dev/full
exits 5 "metrics that cannot be written" "/dev/full: error: metrics: No space left"

# ---- numbers ----
compile nan nan.bin --micro 2
line=$(grep -n "log()" "$models/nan.lua" | cut -d: -f1)
rm -rf out
ranks 1 nan.bin train --data data --steps 8 --bad-step 3 --nan skip --out out --log-every 1
exits 0 "--nan skip goes on and counts" "step 8/8 .*skipped 1"
if [ "$(field skipped out/metrics.jsonl | tail -1)" = 1 ]; then ok "the skipped step is in metrics.jsonl"
else not_ok "the skipped step is in metrics.jsonl" "$(tail -1 out/metrics.jsonl)"; fi
if grep -q '"step":4,"finite":0,.*"loss":null' out/metrics.jsonl; then ok "NaN is null in JSON"
else not_ok "NaN is null in JSON" "$(sed -n 4p out/metrics.jsonl)"; fi
ranks 1 nan.bin train --data data --steps 8 --bad-step 3 --nan stop
exits 7 "--nan stop names op and line" "nan.lua:$line: log .*: first NaN" "nan: error: step 3 is not finite"
told_once "--nan stop"
compile nan nans.bin --ranks 2
ranks 2 nans.bin train --data data --steps 8 --bad-step 3 --nan stop
exits 7 "--nan stop on two ranks" "nan.lua:$line: log .*: first NaN"
told_once "--nan stop on two ranks"
ranks 1 one.bin train --data data --steps 50 --lr 1e38 --nan stop
exits 7 "a rate too large" "mlp.lua:[0-9]+: .*: first (NaN|infinity)" "step [0-9]+ is not finite.*lower the rate"
ranks 1 one.bin train --data data --steps 50 --lr 1e38 --nan skip
exits 7 "ten bad steps in a row end --nan skip" "step [0-9]+ is not finite"

# ---- two runs in one folder ----
./one.bin train --data data --steps 1000000 --quiet --out shared > other.log 2>&1 &
other=$!
for i in $(seq 50); do test -e shared/lock && break; sleep 0.1; done
ranks 1 one.bin train --data data --steps 20 --out shared
exits 1 "a second run in a folder" "shared: error: --out: another run.*: process $other on "
kill -9 $other; wait $other 2> /dev/null
ranks 1 one.bin train --data data --steps 20 --out shared
exits 0 "a dead run leaves no lock"
