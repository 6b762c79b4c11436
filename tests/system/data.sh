#!/bin/sh
# data.sh -- data are seen as a binary reads them.
. "$(dirname "$0")/lib.sh"
"$tool" idx photos 64 12 12

run "$dpc" data head photos
exits 0 "head names fields and samples" '^64 samples$' \
    '^image : u8\[12,12\]$' '^0 label [0-9]'
run "$dpc" data stats photos
exits 0 "stats of each field" '^image : u8\[12,12\] mean [0-9.]+ std'
run "$dpc" data verify photos
exits 0 "verify counts" '^64 samples, 0 corrupt$'
run "$dpc" data verify nowhere
exits 1 "a missing folder is the user's error" "nowhere: error: data:"
run "$dpc" data look photos
exits 2 "what there is to look at" "head, stats, verify, index, pack, tokens"

# ---- records ----
mkdir -p shots/a shots/b
for i in 1 2 3; do
    "$tool" webp shots/a/$i.webp 8 8
    printf 'shot %s\n' $i > shots/a/$i.txt
done
"$tool" webp shots/b/4.webp 8 8
run "$dpc" data pack shots
exits 2 "pack needs a folder to write to" "give --output DIR"
mkdir records && "$tool" array records/1.text.npy f4 2 2
run "$dpc" data head folder:records
exits 1 "a folder of records" '0 pictures .* are packed first: dpc data pack'
run "$dpc" data pack shots -o packed --records 0
exits 2 "an archive of no records" '"0" is no whole number from 1'
run "$dpc" data pack shots -o packed --records 2
exits 0 "pack" '^4 records in 2 archives, 0.0 MiB$' '^4 records in packed/dpc.index$'
gzip -c packed/000000.tar > zipped.tar
run "$dpc" data verify zipped.tar
exits 1 "a gzipped archive" 'zipped.tar: error: data: packed by gzip'
printf 'version https://git-lfs.github.com/spec/v1\nsize 9\n' > pointer.tar
cp pointer.tar pointer.npy
run "$dpc" data verify pointer.tar
exits 1 "a pointer for an archive" 'pointer.tar: error: data: a git-lfs pointer'
run "$dpc" data verify pointer.npy
exits 1 "a pointer for an array" 'pointer.npy: error: data: a git-lfs pointer'
mkdir words && printf '{"caption": 3}' > words/1.json &&
    printf '[]' > words/2.json && printf '{"text": "boot"}' > words/3.json
for i in 1 2 3; do cp shots/b/4.webp words/$i.webp; done
tar -C words --sort=name -cf words.tar .
run "$dpc" data verify words.tar
exits 1 "captions that are none" 'caption is no string' 'its JSON is no object' '3 samples, 2 corrupt'
run "$dpc" data pack shots -o packed
exits 1 "pack beside other archives" 'there are archives already, "packed/000000.tar"'
run "$dpc" data head packed
exits 0 "head of archives" '^4 samples$' '^image : u8\[8,8,3\]$' '^1 caption "shot 2"$' '^3 label 1$'
for what in head stats verify index; do
    run "$dpc" data $what packed --json
    if [ "$rc" = 0 ] && "$tool" json < log 2> /dev/null; then ok "$what --json"
    else not_ok "$what --json" "exit $rc"; fi
done
run "$dpc" data verify packed --json
exits 0 "verify --json counts" '^\{"samples":4,"corrupt":0,"not_as_indexed":0\}$'
printf x | dd of=packed/000001.tar bs=1 seek=513 conv=notrunc 2> /dev/null
run "$dpc" data verify packed
exits 1 "verify names what is not as indexed" \
    '000001.tar: error: data: record "a/3": its bytes are not those of the index' \
    '^4 samples, 0 corrupt, 1 not as indexed$'
if grep -q 922337 log; then not_ok "verify has no budget" "it prints one"
else ok "verify has no budget"; fi
truncate -s +512 packed/000001.tar
run "$dpc" data head packed
exits 1 "an old index" "packed/000001.tar: error: data: [0-9]+ bytes, packed/dpc.index says [0-9]+; make it anew: dpc data index"
run "$dpc" data index packed
exits 0 "index makes it anew" '^4 records in packed/dpc.index'
run "$dpc" data index shots
exits 1 "an index is of archives" "data: error: an index is of archives; dpc data pack makes them"
rm packed/000000.tar
run "$dpc" data head packed
exits 1 "an archive that is gone" "names 000000.tar, which is not there"
printf 'cat\n' > shots/b/4.cls
rm -r packed && "$dpc" data pack shots -o packed > log 2>&1
run "$dpc" data verify packed
exits 1 "a label that is no number" 'record "b/4": label is "cat.*", wanted a whole number' '^4 samples, 1 corrupt, 0 not as indexed$'
run "$dpc" data head "packed?colour=3"
exits 1 "an option that is not known" 'option "colour=3" is not known; wanted size=HxW'
run "$dpc" data head "packed?pad=image:3"
exits 1 "what cannot be padded" "pad=image:3: no such field of rows"
