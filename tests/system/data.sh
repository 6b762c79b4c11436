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
exits 2 "what there is to look at" "head, stats, verify"
