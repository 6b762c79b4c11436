#!/bin/sh
# readers.sh -- five steps of training from each kind of data, on two ranks;
# the same pictures give the same losses, whatever holds them.
. "$(dirname "$0")/lib.sh"
quick
compile mlp two.bin --ranks 2 --micro 2 && compile pictures one.bin ||
    { not_ok "models compile" "exit $?"; exit 0; }
"$tool" idx idx 512 12 12
mkdir gz npy && cp idx/* gz/ && gzip gz/*
"$tool" npy npy/image.npy 12 12 512 && "$tool" npy npy/label.npy 0 0 512

# five BIN RANKS NAME SPEC: trains, losses in NAME.loss.
five() {
    ranks "$2" "$1" train --data "$4" --steps 5 --seed 1 --out "$3" \
        --log-every 1
    exits 0 "$3: five steps" "step 5/5"
    field loss "$3/metrics.jsonl" > "$3.loss"
}
alike() {
    if cmp -s idx.loss "$1.loss" && [ -s idx.loss ]; then ok "$1: the losses of IDX"
    else not_ok "$1: the losses of IDX" "$(paste idx.loss "$1.loss" | head -2 | tr '\n' ' ')"; fi
}

mv idx raw
five two.bin 2 idx raw
five two.bin 2 idxgz gz && alike idxgz
five two.bin 2 numpy npy/image.npy,npy/label.npy && alike numpy
five two.bin 2 idx_split raw:train && alike idx_split

"$tool" pictures photos
five one.bin 1 folder "folder:photos?size=8x8"
exits 0 "folder: the unreadable file is named" "photos/b/broken.png: error: " "another sample takes its place; 1 of at most 100"
ranks 1 one.bin train --data "folder:photos?size=8x8" --bad-data 0 --steps 20
exits 1 "folder: more bad files than --bad-data" "broken.png: error: "
mkdir empty
ranks 1 one.bin train --data folder:empty --steps 5
exits 1 "folder: without a picture" "empty: error: .*"

ranks 1 one.bin train --data npy --steps 5
exits 1 "a folder of .npy files" "npy: error: data: a folder of .npy files; .*: npy/image.npy,npy/label.npy"

# What is given by hand goes before the data.
"$tool" npy image.npy 12 12 16
ranks 2 two.bin train --data raw --input image=image.npy --steps 5 --quiet
exits 0 "--input beside --data"
ranks 2 two.bin train --data raw --steps 40 --overfit-one-batch --out fit --quiet
a=$(field loss fit/metrics.jsonl | head -1) b=$(field loss fit/metrics.jsonl | tail -1)
if holds "$b < 0.7 * $a"; then ok "one batch is learned by heart"
else not_ok "one batch is learned by heart" "loss $a -> $b"; fi
