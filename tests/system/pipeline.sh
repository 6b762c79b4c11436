# pipeline.sh -- roles at work: the stages of a model on ranks of their own
# train as one rank does, whatever the order of their turns; checkpoints do not
# know of them.
. "$(dirname "$0")/lib.sh"
quick
"$tool" idx data 512 12 12
train="--data data --steps 6 --seed 3 --log-every 1"

# piped MODEL RANKS MICRO OPTION...: into piped.bin and the run piped.
piped() {
    m=$1 n=$2 micro=$3 set=; shift 3
    for p; do set="$set -P $p"; done
    rm -rf piped piped.bin
    compile "$m" piped.bin --ranks "$n" --micro "$micro" \
        --partitioner pipeline $set &&
        ranks "$n" piped.bin train $train --out piped
}

# same MODEL RANKS MICRO OPTION...
same() {
    name="$*"
    if ! piped "$@"; then not_ok "$name trains" "exit $rc"; return; fi
    d=$(losses_off "one.$1" piped 1 6)
    t=$("$tool" diff "one.$1/ckpt/step-00000006" piped/ckpt/step-00000006)
    note "$name: losses $d, tensors $t"
    if holds "$d <= 1e-6 && ${t%% *} <= 1e-5"; then ok "$name: as one rank"
    else not_ok "$name: as one rank" "losses $d, tensors $t apart"; fi
}

for m in deep conv attn; do
    compile $m one.$m.bin && ranks 1 one.$m.bin train $train --out one.$m ||
        not_ok "$m: one rank trains" "exit $rc"
done
same deep 2 4
same deep 4 4 pp=4 order=gpipe
same deep 4 4 pp=2 order=zb-h1
same deep 4 2 pp=2 tp=2
same deep 2 4 v=2 order=interleaved
same deep 2 1
same conv 2 4
same conv 4 2 pp=2 order=zb-h1
same attn 3 4 pp=3

# ---- what a run can do ----

piped deep 2 4 || not_ok "deep in two stages" "exit $rc"
exits 0 "memory is told by role" "MiB a rank of role 0, as planned" \
    "MiB a rank of role 1, as planned"
memory=$(grep -c "as planned" log)
if [ "$memory" = 2 ]; then ok "one line of memory a role"
else not_ok "one line of memory a role" "$memory lines"; fi
run ./piped.bin info
exits 0 "info counts roles" "pp=2:stage" "entry    train, role 1: "

more="--data data --steps 9 --seed 3 --log-every 1"
ranks 2 piped.bin train $more --out piped && cp -r one.deep onward &&
    ranks 2 piped.bin train $more --out onward &&
    run ./one.deep.bin train $more --out one.deep
t=$("$tool" diff piped/ckpt/step-00000009 one.deep/ckpt/step-00000009)
u=$("$tool" diff onward/ckpt/step-00000009 one.deep/ckpt/step-00000009)
if holds "${t%% *} <= 1e-5 && ${u%% *} <= 1e-5"; then
    ok "roles go on from one rank's checkpoint, and from their own"
else not_ok "roles go on from checkpoints" "$t, $u"; fi
run ./one.deep.bin train --data data --steps 12 --out alone \
    --resume piped/ckpt/step-00000009
exits 0 "one rank goes on from the roles'" "resume .*step 9"
ranks 2 piped.bin train --data data --steps 1 --lr 0 --out from \
    --init-from one.deep/ckpt/step-00000009
exits 0 "roles take weights" "weights .*: 16 tensors"

DPC_COMM=mpi ranks 2 piped.bin train $train --out mpi
d=$(losses_off one.deep mpi 1 6)
if holds "$d <= 1e-6"; then ok "hops by MPI"
else not_ok "hops by MPI" "exit $rc, losses $d apart"; fi
DPC_SERIAL=1 ranks 2 piped.bin train $train --out serial
d=$(losses_off one.deep serial 1 6)
if holds "$d <= 1e-6"; then ok "one step after the other ends, too"
else not_ok "one step after the other ends" "exit $rc, losses $d apart"; fi

ranks 2 piped.bin train --data data --steps 9 --lr 1e38 --clip 1e38 \
    --nan stop
exits 7 "a NaN is found, whoever made it" "not finite" \
    "note: .*first (NaN|infinity), in turn [0-9], on rank [01]"
said=$(grep -c "^note: .*on rank" log)
if [ "$said" = 1 ]; then ok "one role tells"
else not_ok "one role tells" "$said notes"; fi
ranks 3 piped.bin train $train
exits 1 "another number of ranks" "the plan is for 2 .pp=2. but 3 came"

# ---- by the clock ----

"$dpc" sim "$models/deep.lua" --ranks 4 --micro 8 --partitioner pipeline \
    --json --trace t.json > log 2>&1
if "$tool" json < t.json && "$tool" json < log &&
    [ "$(grep -c process_name t.json)" = 4 ]; then ok "a timeline of four roles"
else not_ok "a timeline of four roles" "$(head -c 200 t.json)"; fi
