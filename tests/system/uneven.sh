#!/bin/sh
# uneven.sh -- sizes that do not divide: 77 tokens, 24 heads, batches of 3.
# Equal in the field, and on real ranks, whose buffers hold NaNs behind their
# parts, and where each step keeps to its results: losses of five steps to 1e-6
# of one rank's.
. "$(dirname "$0")/lib.sh"
quick
export DPC_GUARD=1
"$tool" idx data 64 77 8

# trains NAME RANKS OPTION...
trains() {
    name=$1 n=$2; shift 2
    compile heads "$name.bin" --ranks "$n" "$@" &&
        ranks "$n" "$name.bin" train --data data --steps 5 --seed 3 \
            --out "$name"
}

# works RANKS TURNS OPTION...  all: turns with those of a ring.
works() {
    n=$1 turns=$2; shift 2
    run "$dpc" verify "$models/heads.lua" --ranks "$n" --micro "$turns" "$@"
    exits 0 "equal in the field: $n x $turns $*" \
        "^train: .*$n ranks x ${all:-$turns} "
    rm -rf other
    if ! trains other "$n" --micro "$turns" "$@"; then
        not_ok "trains: $n x $turns $*" "exit $rc"; return
    fi
    d=$(losses_off one other 1 5)
    if holds "$d <= 1e-6"; then ok "trains: $n x $turns $*"
    else not_ok "trains: $n x $turns $*" "losses part by $d"; fi
}

if ! trains one 1; then not_ok "one rank trains" "exit $rc"; exit; fi
works 2 2
works 4 2 --partitioner zero3 -P least=1
works 8 1 --partitioner ulysses
works 5 1 --partitioner ulysses -D scores=1
all=8
works 8 1 --partitioner ring -D scores=1
all=
works 5 1 --partitioner megatron -P least=1
works 5 1 --partitioner megatron -P least=1 -P sp=true
all=4
works 4 1 --partitioner megatron -P least=1 -P tp=4 -P sp=true -P ring=true
