# lib.sh -- a model trained 30 steps under many plans, on 2, 4 and 8 ranks: the
# losses of one rank.  Sums are made in other orders, so they part slowly: 1e-6
# relative for the first three steps, 1e-3 at the thirtieth.
#
# A model's file calls `plans`.  DPC_PLANS says how many of the plans, spread
# over the list, if not all.  Kernels of a plan run for milliseconds and are
# compiled for ten seconds, so the C compiler is told to be quick; how it
# optimizes them is for other tests (system/equality).
. "$(dirname "$0")/../system/lib.sh"
"$tool" idx photos 256 28 28
quick ${QUICK:-}

# ranks, micro-batches, partitioner and its options
plans='2 1 ddp
2 2 ddp
2 4 ddp
2 1 zero
2 2 zero
2 1 zero -P gather=use
2 2 zero -P gather=use
2 2 zero1
2 2 zero2
2 2 zero3
2 2 zero -P gather=batch
4 2 hsdp
2 1 megatron
2 2 megatron
2 1 replicate
2 1 exact
4 1 ddp
4 2 ddp
4 1 zero
4 2 zero -P gather=use
4 1 megatron
4 1 megatron -P tp=2
2 1 megatron -P sp=true
4 2 megatron -P tp=2 -P sp=true
2 2 ulysses
4 1 ulysses -P sp=2
2 1 ring
4 2 ring -P sp=2
4 2 megatron -P tp=2
2 4 pipeline
2 4 pipeline -P v=2
2 4 pipeline -P order=zb-h1
4 4 pipeline
4 4 pipeline -P order=gpipe
4 2 pipeline -P pp=2
4 2 pipeline -P pp=2 -P tp=2
4 2 pipeline -P pp=2 -P inner=zero
8 1 ddp
8 1 zero
8 1 zero -P gather=use
8 1 megatron -P tp=2
8 4 pipeline -P pp=4 -P order=auto
8 2 pipeline -P pp=2 -P tp=2
8 1 megatron -P tp=4'

# trains NAME RANKS OPTION...: 30 steps in NAME.
trains() {
    name=$1 n=$2; shift 2
    "$dpc" compile "$root/models/$file.lua" $small -o "$name.bin" \
        --ranks "$n" "$@" > log 2>&1 &&
        ranks "$n" "$name.bin" train --data photos --steps 30 --seed 3 \
            --out "$name"
    rc=$?
    rm -f "$name.bin"
    return $rc
}

# under RANKS MICRO PARTITIONER OPTION...
under() {
    n=$1 micro=$2 claim="$model: $*"; shift 2
    rm -rf other
    if ! trains other "$n" --micro "$micro" --partitioner "$@"; then
        not_ok "$claim" "exit $rc"; return
    fi
    first=$(losses_off one other 1 3) last=$(losses_off one other 30 30)
    note "$claim: $first $last"
    if holds "$first <= 1e-6" && holds "$last <= 1e-3"; then ok "$claim"
    else not_ok "$claim" "losses part by $first, then $last"; fi
}

# plans MODEL FILE OPTION...: MODEL is its name here.
plans() {
    model=$1 file=$2; shift 2
    small=$*
    trains one 1 || { not_ok "$model: one rank" "exit $rc"; return; }
    echo "$plans" | awk -v n="${DPC_PLANS:-1000}" '{ l[NR] = $0 }
        END { for (i = 1; i <= NR; i++)
            if (n >= NR || int(i * n / NR) > int((i - 1) * n / NR))
                print l[i] }' > plans
    while read -r line; do under $line; done < plans
}
