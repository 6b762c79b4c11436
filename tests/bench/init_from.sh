#!/bin/sh
# init_from.sh [GIB] [DIR] -- how fast --init-from reads a folder of
# safetensors, against dd: both from the disk, the cache dropped before each,
# medians of five interleaved runs.  What the binary itself says is compared:
# the folder is opened, its index and headers checked, all weights read; to
# start the process and to draw weights that are then replaced is not.
#
#     tests/bench/init_from.sh 4 /var/tmp
#
# Wants twice GIB of disk, GIB of memory, and an idle machine: what dd has to
# spare of a core, reading has not.  Exit 6 below 80 %.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
dpc=${BUILD:-$root/build}/dpc gib=${1:-4}
work=$(mktemp -d "${2:-/tmp}/init-from.XXXXXX") || exit 5
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 5
export DPC_HOME="$root"

# Weights of 64 MiB each, in shards of 512.
"$dpc" compile -q "$root/tests/models/wide.lua" -D rows=4096 \
    -D params=$((16 * gib)) -o wide || exit
{ printf '\223NUMPY\1\0\106\0'
  printf '%-69s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"
  printf '\0\0\0\0'; } > x.npy
./wide train --data x.npy --steps 1 --out run > log 2>&1 || { cat log; exit 5; }
"$dpc" weights convert run shards --shards 537MB 2> log || { cat log; exit 5; }
rm -rf run

drop() {
    for f in shards/*.safetensors; do
        dd of="$f" oflag=nocache conv=notrunc,fdatasync count=0 2> log
    done
}
now() { date +%s.%N; }
by_dd() { for f in shards/*.safetensors; do dd if="$f" of=/dev/null bs=8M 2> log; done; }
by_dpc() { ./wide sample --init-from shards > log 2>&1; }
for i in 1 2 3 4 5; do
    drop
    at=$(now)
    by_dd
    echo "$at $(now)" | awk '{ print $2 - $1 }' >> dd.s
    drop
    by_dpc || { cat log; exit 5; }
    sed -n 's/^weights .* in \([0-9.]*\) s$/\1/p' log >> dpc.s
done
median() { sort -n "$1.s" | sed -n 3p; }
echo "$(median dd) $(median dpc) $gib" | awk '{
    printf "dd %.2f s, %.2f GiB/s; --init-from %.2f s, %.2f GiB/s: %.0f %%\n",
        $1, $3 / $1, $2, $3 / $2, 100 * $1 / $2
    exit $1 / $2 < 0.8 ? 6 : 0 }'
