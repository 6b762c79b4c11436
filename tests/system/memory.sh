#!/bin/sh
# memory.sh -- what the plan says is what is taken, once.
#
# count.so, preloaded, sees every malloc and mmap of a process and charges it
# to the library that asked.
. "$(dirname "$0")/lib.sh"
"$tool" idx data 512 12 12
more= data=data
if grep -q __asan_init "$BUILD/libdpc_rt.a"; then
    skip "allocations are counted" "AddressSanitizer replaces malloc itself"
    exit
fi
"${CC:-cc}" -std=gnu11 -O2 -shared -fPIC -o count.so "$root/tests/system/count.c" -ldl > log 2>&1 ||
    { not_ok "the counter compiles" "exit $?"; exit 0; }

# counted FROM TO RANKS BIN: trains 110 steps, counts in the files c.*.
counted() {
    rm -f c.*
    LD_PRELOAD=$PWD/count.so COUNT_FROM=$1 COUNT_TO=$2 COUNT_OUT=$PWD/c \
        ranks "$3" "$4" train --data $data --steps 110 --out out-$4 --resume none
}

# of OBJECT KIND COLUMN: sum over the callers.
of() { cat c.* 2> /dev/null | awk -v o="$1" -v k="$2" -v c="$3" '$1 ~ o && $2 ~ k { n += $c } END { print n + 0 }'; }
bytes() { sed -n "s/.*\"$1_bytes\": *\([0-9]*\).*/\1/p" info; }

# quiet_steps MODEL RANKS: nothing is allocated between steps 2 and 100.
quiet_steps() {
    b=$1-$2.bin
    compile "$1" "$b" --ranks "$2" --micro 2 $more || { not_ok "$1 compiles" "exit $?"; return; }
    counted 2 100 "$2" "$b"
    if [ $rc != 0 ] || ! ls c.* > /dev/null 2>&1; then
        not_ok "$1 on $2 ranks trains while counted" "exit $rc"; return
    fi
    note "$1 on $2 ranks, steps 2 to 100, rank 0: dpc $(of "$b" . 3) calls, oneDNN $(of 'stdc|dnnl' . 3), OpenMP $(of gomp . 3); past the blocks $(field heap_calls out-$b/metrics.jsonl | tail -1)"
    name="$1 on $2 ranks: no allocation between steps 2 and 100"
    if [ -z "$(cat c.*)" ]; then ok "$name"
    else not_ok "$name" "$(cat c.* | tr '\n' ';')"; fi
    resident "$1" "$2"
}

# The last line says "mem MEASURED/PLANNED MiB", in whole MiB.
resident() {
    m=$(sed -n 's|.*mem \([0-9]*\)/\([0-9]*\) MiB.*|\1 \2|p' log | tail -1)
    note "$1 on $2 ranks: resident growth and plan, MiB: $m"
    name="$1 on $2 ranks: resident memory grows by the plan and at most 32 MiB"
    if [ "$m" ] && holds "${m% *} <= ${m#* } + 32"; then ok "$name"
    else not_ok "$name" "$m"; fi
}


# shipped MODEL RANKS: the same of a model of models/dalle2, shrunk.
shipped() {
    models=$root/models/dalle2 more="-D size=tiny -D batch=16" data=photos
    quiet_steps "$@"
    models=$root/tests/models more= data=data
}
"$tool" idx photos 256 28 28
shipped decoder 1
quick
quiet_steps mlp 2
quiet_steps conv 2
quiet_steps attn 2
quiet_steps conv 1

# From the start of the process, without MPI, the program maps just its spaces.
for m in mlp conv attn mlp-host; do
    more=
    test $m != mlp-host || more="--offload states,params"
    compile ${m%-host} $m.bin $more && ./$m.bin info --json > info && counted 0 100 1 $m.bin
    want=$(for k in leaves arena io host_leaves host_arena; do bytes $k; done | awk '{ n += int(($1 + 4095) / 4096) * 4096 } END { print n }')
    have=$(of $m.bin map 4)
    note "$m: planned $want bytes in pages, mapped $have"
    if [ "$want" = "$have" ] && [ "$want" -gt 0 ]; then ok "$m: allocated as planned"
    else not_ok "$m: allocated as planned" "planned $want, mapped $have"; fi
done

# At a size that shows: the arena is the largest sum of live buffers.
for m in mlp conv attn; do
    for p in 1 4; do
        compile $m big.bin -D batch=512 --micro $p
        a=$(sed -n 's/.* \([0-9.]*\) MiB of arena (bound \([0-9.]*\)).*/\1 \2/p' log)
        note "$m, 512 pictures in $p parts: arena and bound, MiB: $a"
        if [ "$a" ] && holds "${a% *} <= ${a#* } * 1.02 + 0.1"; then ok "$m in $p parts: arena within 2 % of its bound"
        else not_ok "$m in $p parts: arena within 2 % of its bound" "$a"; fi
    done
done
