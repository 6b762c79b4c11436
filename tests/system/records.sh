#!/bin/sh
# records.sh -- five steps of training from each kind of record: archives,
# packed or not, captions as ids, padded embeddings, shards; what is missing is
# counted, and both ranks take all steps.
. "$(dirname "$0")/lib.sh"
quick
compile pictures one.bin && compile records two.bin --ranks 2 &&
    compile records words.bin -D takes=words &&
    compile records text.bin -D takes=text --ranks 2 --micro 2 &&
    compile records embed.bin -D takes=embed --ranks 2 &&
    compile records beside.bin -D takes=beside &&
    compile records few.bin -D rows=100 ||
    { not_ok "models compile" "exit $?"; exit 0; }

# five BIN RANKS NAME SPEC OPTIONS...: trains, losses in NAME.loss.
five() {
    who=$1 many=$2 to=$3 spec=$4; shift 4
    ranks "$many" "$who" train --data "$spec" --steps 5 --seed 1 \
        --out "$to" --log-every 1 "$@"
    exits 0 "$to: five steps" "step 5/5"
    field loss "$to/metrics.jsonl" > "$to.loss"
}
alike() {
    if cmp -s "$1.loss" "$2.loss" && [ -s "$1.loss" ]; then ok "$2: the losses of $1"
    else not_ok "$2: the losses of $1" "$(paste "$1.loss" "$2.loss" | head -2 | tr '\n' ' ')"; fi
}

# ---- pictures: a folder, its archives, their index ----
mkdir -p shots/a shots/b
for i in 1 2 3 4; do
    "$tool" webp shots/a/$i.webp $((8 + i)) 9
    "$tool" webp shots/b/$i.webp 8 $((8 + i))
done
run "$dpc" data pack shots -o packed --records 3
exits 0 "pack" '^8 records in 3 archives' '^8 records in packed/dpc.index'
five one.bin 1 folder "folder:shots?size=8x8"
five one.bin 1 packed "packed?size=8x8" && alike folder packed
five one.bin 1 walked "packed?size=8x8&index=no" && alike folder walked
five one.bin 1 listed "packed/{000000..000002}.tar?size=8x8" &&
    alike folder listed
run "$dpc" data verify packed
exits 0 "verify an index" '^8 samples, 0 corrupt, 0 not as indexed'
ranks 1 one.bin train --data "packed?size=8x8" --steps 9 --out part --save-every 3 --quiet
ranks 1 one.bin train --data "packed?size=8x8" --steps 9 --out resumed --resume part/ckpt/step-00000003 --quiet
a=$(cd part/ckpt && ls -d step-00000009) b=$("$tool" hash "part/ckpt/$a")
if [ -n "$b" ] && [ "$b" = "$("$tool" hash "resumed/ckpt/$a")" ]
then ok "a resumed run reads what the whole one did"
else not_ok "a resumed run reads what the whole one did" "another hash"; fi

# ---- captions as ids ----
printf '#version: 0.2\nb o\no t</w>\nbo ot</w>\nr e\nre d</w>\n' > clip.txt
mkdir said
i=0
for text in "a red boot" "Red  BOOT" "a boot on a shirt" "" "a a a a a a a a a" \
    "red" "shirt" "a red shirt"; do
    i=$((i + 1)); printf '%s\n' "$text" > said/$i.txt
done
run "$dpc" data tokens "a red boot" --tokenizer clip.txt --json
exits 0 "ids of a text" '^\{"ids":\[517,320,516,514,518\],"used":5\}$'
run "$dpc" data tokens "a red boot" --tokenizer none.txt
exits 1 "a missing vocabulary" "none.txt: error: tokenizer: No such file"
run "$dpc" data tokens "a red boot"
exits 2 "no vocabulary" "give --tokenizer PATH"
run "$dpc" data pack said -o tars
five two.bin 2 tokens tars --tokenizer clip.txt
ranks 2 two.bin train --data tars --steps 5
exits 1 "tokens without a tokenizer" "input 'tokens' is no field of 'tars', which has 'caption'; give --tokenizer PATH"
ranks 1 few.bin train --data tars --steps 5 --tokenizer clip.txt
exits 1 "ids beyond the table" "clip.txt: error: tokenizer: ids up to 518, but input 'tokens' \\(.*records.lua:[0-9]+\\) indexes a table of 100 rows in .*records.lua:[0-9]+"
ranks 1 one.bin train --data "packed?size=8x8" --steps 5 --tokenizer clip.txt
exits 1 "a tokenizer for a model without" "no input of the model takes token ids"
cp "$models/records.lua" same.lua
"$dpc" compile same.lua -o same.bin > log 2>&1
five same.bin 1 drawn tars --tokenizer clip.txt
for i in 1 2 3 4; do printf 'a red boot' > shots/a/$i.txt; done
five same.bin 1 texts folder:shots --tokenizer clip.txt
ranks 1 same.bin sample --out drawn --tokenizer clip.txt --output seen=seen.npy \
    --caption "red boot" --caption "a shirt"
exits 0 "sample --caption by a tokenizer"
if [ -s seen.npy ]; then ok "its output is written"
else not_ok "its output is written" "no file"; fi
ranks 1 same.bin sample --out drawn --caption "red boot"
exits 1 "sample --caption without" "--caption: this model has no captions, or takes them with --tokenizer PATH"
sed 's|or {}$|or { caption = { tokenizer = "clip.txt" } }|' same.lua > named.lua
"$dpc" compile named.lua -o named.bin > log 2>&1
five named.bin 1 named tars && alike drawn named
five words.bin 1 words tars --bad-data 2
exits 0 "words of data: unknown ones are counted" "does not know the word 'on'" "more than 8 words" "2 of at most 2"
ranks 1 words.bin train --data tars --steps 5 --bad-data 1
exits 1 "words of data: the budget" "corrupt samples so far: 2, allowed: 1"

# ---- padded embeddings ----
mkdir long
for i in 1 2 3 4 5 6 7 8; do "$tool" array long/$i.text.npy f4 $((i % 5 + 1)) 2; done
run "$dpc" data pack long -o embedded --records 5
run "$dpc" data head embedded
exits 0 "an index knows the rows" '^text : f32\[5,2\]$' '^text_length : i32\[\]$' '^text_mask : u8\[5\]$' '^0 text_length 2$'
five text.bin 2 padded embedded
five text.bin 2 padded_walked "embedded?index=no" && alike padded padded_walked
"$tool" array long/9.text.npy f4 7 2
rm -r embedded && "$dpc" data pack long -o embedded > log 2>&1
five text.bin 2 longer embedded
exits 0 "a record of too many rows is counted" 'record "9": text is f32\[7,2\], others are padded to f32\[6,2\]'

# safe FILE ROWS: "text" f32 [ROWS, 2] of ones, as .safetensors.
safe() {
    h="{\"text\":{\"dtype\":\"F32\",\"shape\":[$2,2],\"data_offsets\":[0,$((8 * $2))]}}"
    { printf "\\$(printf %o ${#h})\\0\\0\\0\\0\\0\\0\\0%s" "$h"
      for j in $(seq $((2 * $2))); do printf '\0\0\200\077'; done; } > "$1"
}
mkdir tensors
for i in 1 2 3 4 5 6 7 8; do safe tensors/$i.safetensors $((i % 5 + 1)); done
echo short > tensors/9.safetensors
run "$dpc" data pack tensors -o safe
five text.bin 2 safetensors safe
exits 0 "a damaged .safetensors is counted" 'record "9": its .safetensors: '

# ---- shards ----
mkdir img txt emb
for k in 0 1 2; do
    "$tool" array img/img_$k.npy f4 $((k + 4)) 2
    "$tool" array txt/txt_$k.npy f4 $((k + 4)) 2
done
five embed.bin 2 shards image_embed=img,text_embed=txt
"$tool" array txt/txt_1.npy f4 3 2
rm txt/txt_2.npy
five embed.bin 2 unequal image_embed=img,text_embed=txt
exits 0 "unequal shards are counted" '"text_embed" has no (shard 2|row [34], its shard has 3)'
ranks 2 embed.bin train --data image_embed=img,text_embed=txt --steps 5 --bad-data 1
exits 1 "unequal shards: the budget" "corrupt samples so far: 2, allowed: 1"
ranks 2 embed.bin train --data image_embed=img,text_embed=none --steps 5
exits 1 "shards that are not there" "none: error: data: No such file"
mkdir keys
for k in 0 1; do
    for i in 0 1 2 3; do echo x > keys/000${k}000$i.txt; done
    "$tool" array emb/emb_$k.npy f4 $((4 - k)) 2
done
run "$dpc" data pack keys -o beside.d --records 4
five beside.bin 1 rows "beside.d?rows=emb:emb"
exits 0 "an embedding that is missing is counted" 'record "00010003": emb: data: "emb" has no row 3, its shard has 3'
