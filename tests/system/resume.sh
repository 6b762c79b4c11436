#!/bin/sh
# resume.sh -- kill -9 at any instant, go on: the same numbers in the end.
#
# N (10) kills of one rank of two, or of the only one, every third of them
# while a checkpoint is being written; the hash of the last checkpoint equals
# that of a run that nobody disturbed.  Then the polite ways to end.
. "$(dirname "$0")/lib.sh"
quick
N=${N:-10}
"$tool" idx data 512 12 12
compile conv one.bin --ranks 1 && compile conv two.bin --ranks 2 ||
    { not_ok "conv compiles" "exit $?"; exit 0; }

train() { ranks "$@" --data data --seed 5 --steps 120 --save-every 3 --quiet; }

# start RANKS DIR: in the background; its rank 0 in pid, its launcher in boss.
start() {
    case $1 in
    1) OMP_NUM_THREADS=1 ./one.bin train --data data --seed 5 --steps 120 \
           --save-every 3 --out "$2" --quiet > log 2>&1 &
       boss=$! pid=$boss ;;
    *) mpirun -n 2 ./two.bin train --data data --seed 5 --steps 120 \
           --save-every 3 --out "$2" --quiet > log 2>&1 &
       boss=$! pid= k=0
       while [ -z "$pid" ] && [ $k -lt 2000 ] && kill -0 $boss 2> /dev/null; do
           pid=$(pgrep -P $boss -f two.bin | head -1) k=$((k + 1))
           [ "$pid" ] || sleep 0.02
       done ;;
    esac
}

random() { od -An -N2 -tu2 /dev/urandom | awk "{ printf \"%.3f\", \$1 / 65536 * $1 }"; }

# hit RANKS DIR: one kill; false when the run was over before it.
hit() {
    start "$@"
    if [ $((kills % 3)) = 2 ]; then
        timeout 20 "$tool" strike "$pid" "$2/ckpt"
    else
        sleep "$(random 0.8)"
        kill -9 "$pid" 2> /dev/null
    fi
    wait $boss
    [ $? != 0 ] || return 1
    kills=$((kills + 1))
    [ -z "$(find "$2/ckpt" -name '*.tmp-new' 2> find.log)" ] ||
        in_save=$((in_save + 1))
}

hash_of() { "$tool" hash "$1/ckpt/step-00000120"; }

# chain RANKS BIN KILLS
chain() {
    OMP_NUM_THREADS=1
    export OMP_NUM_THREADS
    train "$1" "$2" train --out "calm$1" || not_ok "$1 ranks train" "exit $rc"
    calm=$(hash_of "calm$1") kills=0 in_save=0 run=0 wrong=0
    while [ $kills -lt "$3" ]; do
        run=$((run + 1)) d=run$1-$run
        while [ $kills -lt "$3" ] && hit "$1" "$d"; do :; done
        train "$1" "$2" train --out "$d" --resume auto || wrong=$((wrong + 1))
        [ "$(hash_of "$d")" = "$calm" ] || wrong=$((wrong + 1))
        [ -z "$(find "$d/ckpt" -name '*.tmp-new')" ] || left=$d
    done
    note "$1 ranks: $kills kills, $in_save in a save, over $run runs"
    name="$1 ranks: after $kills kills the checkpoint is that of a calm run"
    if [ $wrong = 0 ] && [ "$calm" ]; then ok "$name"
    else not_ok "$name" "$wrong of $run runs differ or fail"; fi
}

left=
chain 1 one.bin $((N / 2))
chain 2 two.bin $((N - N / 2))
if [ -z "$left" ]; then ok "no half a checkpoint stays"
else not_ok "no half a checkpoint stays" "in $left"; fi

# Six steps from a checkpoint of another plan.
train 1 one.bin train --out other --resume calm2/ckpt/step-00000114
t=$("$tool" diff calm2/ckpt/step-00000120 other/ckpt/step-00000120)
note "from two ranks to one: tensors $t after six steps"
if holds "${t%% *} <= 1e-5"; then ok "one rank goes on where two stopped"
else not_ok "one rank goes on where two stopped" "$t apart"; fi
