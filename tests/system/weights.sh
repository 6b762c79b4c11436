#!/bin/sh
# weights.sh -- dpc weights: what a run's tensors are, whose they could be, and
# how far two runs part.
. "$(dirname "$0")/lib.sh"
"$tool" idx data 64 12 12
compile mlp bin && ranks 1 bin train --data data --steps 2 --seed 1 --out one &&
    ranks 1 bin train --data data --steps 2 --seed 2 --out two ||
    not_ok "mlp trains" "exit $rc"

run "$dpc" weights ls one
exits 0 "ls names tensors" '^in.w : F32\['
run "$dpc" weights map one "$models/mlp.lua"
exits 0 "map: every param has its tensor" '^in.w : f32\[.* from F32\['
header='{"out.b":{"dtype":"I64","shape":[10],"data_offsets":[0,80]}}'
{ printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"
  head -c 80 /dev/zero; } > whole.safetensors
run "$dpc" weights map whole.safetensors "$models/mlp.lua"
exits 1 "map: numbers that do not convert are told" \
    '^out.b : f32\[10\], but the tensor is I64\[10\]'
run "$dpc" weights map one "$models/attn.lua"
exits 1 "map: what is missing is named" '^block.mlp.up.w : .* missing' 'but the tensor is' \
    '^[0-9]+ of [0-9]+ params'
printf 'in.w first.w\nin.b -\n*.b *.bias\n' > rename
run "$dpc" weights map one "$models/mlp.lua" --map rename
exits 1 "map: both directions, with the nearest" \
    '^in.w : f32\[.* missing; nearest: first.w$' \
    '^first.w : F32\[.* is no param.s; nearest: in.w$' \
    'tensors are no param.s$'
run "$dpc" weights diff one one
exits 0 "diff: a run equals itself" '^largest relative distance 0;'
run "$dpc" weights diff one two
exits 6 "diff: two seeds part" '^in.w : F32\[.*\] [0-9.e-]+$'
run "$dpc" weights ls ""
exits 2 "an empty path" 'a path is empty'
run "$dpc" weights ls nowhere
exits 1 "no such folder" '^nowhere: error: '

# ---- convert: one file, shards, and back ----

run "$dpc" weights convert one all.safetensors
exits 0 "convert: a run into one file" '^[0-9]+ tensors, [0-9]+ bytes, 1 file$'
run "$dpc" weights diff one all.safetensors
exits 0 "diff: bare params with a run's" '^largest relative distance 0;' \
    'note: [0-9]* states of one have no like'
head -c -4 all.safetensors > nan.safetensors && cp nan.safetensors big.safetensors
printf '\377\377\377\377' >> nan.safetensors
printf '\377\377\177\177' >> big.safetensors
run "$dpc" weights diff all.safetensors nan.safetensors
exits 6 "diff: a NaN is far from all" 'inf, NaN: 0 and 1' '^largest relative distance inf;'
run "$dpc" weights convert big.safetensors narrow.safetensors --dtype f16
exits 0 "convert: what f16 does not reach" 'warning: ".*": 1 numbers are beyond F16'
run "$dpc" weights convert all.safetensors shards --shards 8KB
exits 0 "convert: into shards" ' [0-9]+ files$'
run "$dpc" weights convert shards back.safetensors
cmp -s all.safetensors back.safetensors && ok "there and back: the same bytes" ||
    not_ok "there and back: the same bytes" "they differ"
run "$dpc" weights diff all.safetensors shards
exits 0 "shards hold the run's params" '^largest relative distance 0;'
run "$dpc" weights convert all.safetensors half.safetensors --dtype bf16
run "$dpc" weights diff all.safetensors half.safetensors
exits 6 "bf16 rounds" '^largest relative distance 0\.00[0-9]*;'
run "$dpc" weights convert all.safetensors in.safetensors --prefix in
run "$dpc" weights ls in.safetensors
exits 0 "--prefix takes a part" '^w : F32\['
run "$dpc" weights convert one averages.safetensors --ema
run "$dpc" weights diff all.safetensors averages.safetensors
exits 6 "--ema takes averages" '^in.w : F32'
run "$dpc" weights convert all.safetensors half.safetensors
exits 1 "convert writes over nothing" 'half.safetensors: error: exists already'
run "$dpc" weights convert all.safetensors x --shards many
exits 2 "a size that is none" 'no size; 5GB'
run "$dpc" weights convert all.safetensors y --prefix nothing
exits 1 "a prefix of nothing" 'holds no tensor below "nothing."'
test -e y || ls y.tmp* > log 2>&1 && not_ok "a failure leaves nothing" "$(cat log)" ||
    ok "a failure leaves nothing"

# ---- --init-from: folders, strictness, names ----

start() { ranks 1 bin eval --data data --json --init-from "$1"; }
start all.safetensors
whole=$(field loss log)
start shards
test "$(field loss log)" = "$whole" && ok "a folder with an index is read" ||
    not_ok "a folder with an index is read" "$(field loss log), not $whole"
first=$(ls shards/*.safetensors | head -1)
mv "$first" kept
start shards
exits 1 "a shard that is absent is named" "$first: error: .*it is not there"
mv kept "$first"
printf 'version https://git-lfs.github.com/spec/v1\nsize 9\n' > kept
cp "$first" good && cp kept "$first"
start shards
exits 1 "a git-lfs pointer is named" "$first: error: a git-lfs pointer"
cp good "$first"
printf '* module.net.*\n' > wrap
run "$dpc" weights convert all.safetensors wrapped.safetensors --map wrap
start wrapped.safetensors
exits 0 "a prefix of all names is cut off" 'begin with "module.net."'
printf 'in.* first.*\n' > rename
run "$dpc" weights convert all.safetensors other.safetensors --map rename
start other.safetensors
exits 1 "names that differ are listed" '2 missing, 2 extra' \
    'missing "in.w" .there is "first.w"' \
    'extra "first.w" .the model has "in.w"'
printf 'first.* in.*\n' > back
start other.safetensors:map:back
test "$(field loss log)" = "$whole" && ok "rules rename" ||
    not_ok "rules rename" "$(cat log)"
printf 'in.* -\n' > drop
run "$dpc" weights convert all.safetensors less.safetensors --map drop
start less.safetensors:partial
exits 0 ":partial: trainable ones may be missing"
start in.safetensors:partial
exits 1 ":partial of nothing" 'no tensor is a param of this model, which has'
mkdir -p a=b && cp all.safetensors a=b/
start ./a=b/all.safetensors
test "$(field loss log)" = "$whole" && ok "a path may hold a =" ||
    not_ok "a path may hold a =" "$(cat log)"
start out=all.safetensors
exits 0 "a scope alone" 'all.safetensors: 2 tensors'
start out:in=all.safetensors
exits 1 "each wrong shape is told once" ' 2 of another type or shape'
start nope=all.safetensors
exits 1 "a scope that is none" 'no param of this model is called "nope\.\*"'
start ""
exits 2 "--init-from of nothing" "'--init-from ': wanted"
ranks 1 bin eval --data data --json --init-from all.safetensors \
    --init-from less.safetensors:over
test "$(field loss log)" = "$whole" && ok ":over goes over what is there" ||
    not_ok ":over goes over what is there" "$(cat log)"

# ---- memory: one slice beside the weights ----

compile wide wide.bin -D params=4 || not_ok "wide compiles" "exit $?"
"$tool" array x.npy f4 1 1
ranks 1 wide.bin train --data x.npy --steps 1 --out wide
run "$dpc" weights convert wide narrow --dtype bf16 --shards 20MB
look() {
    "$tool" peak "$1" ./wide.bin sample --resume none $2 > log 2>&1
    rc=$?
}
look without ""
look same "--init-from wide"
look other "--init-from narrow"
exits 0 "64 MiB of bf16 in shards are read" '^sum '
for f in same other; do
    over=$(($(cat $f) - $(cat without) - 65536))
    note "$f: $over KiB beside the 65536 KiB of weights"
    if grep -q __asan_init "$BUILD/libdpc_rt.a"; then
        skip "$f: at most a slice beside the weights" "AddressSanitizer's own"
    elif [ $over -le $((8192 + 2048)) ]; then
        ok "$f: at most a slice beside the weights"
    else
        not_ok "$f: at most a slice beside the weights" "$over KiB"
    fi
done
