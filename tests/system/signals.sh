#!/bin/sh
# signals.sh -- being asked to stop, and being killed.
. "$(dirname "$0")/lib.sh"
"$tool" idx data 512 12 12
compile conv one.bin --ranks 1 && compile conv two.bin --ranks 2 ||
    { not_ok "conv compiles" "exit $?"; exit 0; }

# Each rank below a shell, which notes its exit code; where the rank was
# killed the shell lingers, so that mpirun does not end the others.
cat > below <<'END'
#!/bin/sh
"$@"
rc=$?
echo $rc > rc.$OMPI_COMM_WORLD_RANK
[ $rc -lt 128 ] || sleep 2
exit $rc
END
chmod +x below

# begin COMMAND...: a long training, until its second step is done.
begin() {
    rm -rf out rc.*
    "$@" train --data data --steps 10000000 --out out --log-every 1000 \
        > log 2>&1 &
    boss=$! k=0
    until [ $k -gt 2000 ] || grep -qs '"step":2,' out/metrics.jsonl; do
        sleep 0.05; k=$((k + 1))
    done
}

# pid_of RANK: of the binary, which its shell or mpirun started.
pid_of() {
    for p in $(pgrep -f '^\./two.bin train'); do
        cat "/proc/$p/environ" 2> /dev/null | tr '\0' '\n' |
            grep -qx "OMPI_COMM_WORLD_RANK=$1" &&
            [ "$(readlink "/proc/$p/cwd")" = "$(pwd -P)" ] && echo "$p" && return
    done
}

saved() { test -s out/ckpt/latest && "$tool" hash "out/ckpt/$(cat out/ckpt/latest)" > /dev/null; }

begin ./one.bin
kill -TERM $boss; wait $boss; rc=$?
exits 0 "SIGTERM ends one rank with exit 0" "stopped at step [0-9]+, saved in out/ckpt" "--resume auto"
if saved; then ok "SIGTERM saves"; else not_ok "SIGTERM saves" "nothing whole in out/ckpt"; fi

begin mpirun -n 2 ./two.bin
kill -TERM "$(pid_of 1)"; wait $boss; rc=$?
exits 0 "SIGTERM to one rank ends both with exit 0" "stopped at step [0-9]+, saved"
if saved; then ok "SIGTERM to one rank saves"; else not_ok "SIGTERM to one rank saves" "nothing whole"; fi

begin mpirun -n 2 ./two.bin
kill -INT "$(pid_of 0)"; wait $boss; rc=$?
exits 0 "SIGINT does the same" "stopped at step [0-9]+, saved"

begin "$dpc" run -n 2 two.bin
kill -TERM $boss; wait $boss; rc=$?
exits 0 "SIGTERM to dpc run ends both with exit 0" "stopped at step [0-9]+, saved"
if saved; then ok "SIGTERM to dpc run saves"; else not_ok "SIGTERM to dpc run saves" "nothing whole"; fi

begin "$dpc" run -n 2 two.bin
kill -9 $boss; t=$(now) k=0; wait $boss 2> wait.log
until [ $k -gt 200 ] || [ -z "$(pid_of 0)$(pid_of 1)" ]; do sleep 0.05; k=$((k + 1)); done
t=$(since "$t")
if holds "$t < 10"; then ok "dpc run killed: its ranks leave in 10 s"
else not_ok "dpc run killed: its ranks leave in 10 s" "$t s"; fi

begin mpirun -n 2 ./below ./two.bin
dead=$(pid_of 1) t=$(now)
kill -9 "$dead"
k=0
until [ $k -gt 200 ] || [ -s rc.0 ]; do sleep 0.05; k=$((k + 1)); done
note "the survivor left $(since "$t") s after its peer was killed"
wait $boss
t=$(since "$t")
rc=$(cat rc.0 2> /dev/null)
exits 5 "a killed rank is named, the survivor leaves with 5" "error: rank 1 \(pid $dead\) died (at step [0-9]+ of 'train' in op '.*' \(.*conv.lua:[0-9]+\)|after step [0-9]+)" "--resume auto"
if holds "$t < 10" && [ -z "$(pid_of 0)$(pid_of 1)" ]; then ok "all are gone in 10 s"
else not_ok "all are gone in 10 s" "$t s, left: $(pid_of 0) $(pid_of 1)"; fi

begin mpirun -n 2 ./two.bin
kill -9 "$(pid_of 0)"; t=$(now); wait $boss; rc=$?; t=$(since "$t")
note "mpirun left $t s after rank 0 was killed, with exit $rc"
if holds "$t < 10" && [ $rc != 0 ] && [ -z "$(pid_of 1)" ]; then ok "rank 0 killed: mpirun fails, all are gone in 10 s"
else not_ok "rank 0 killed: mpirun fails, all are gone in 10 s" "$t s, exit $rc"; fi

begin mpirun -n 2 ./two.bin
kill -9 $boss; t=$(now) k=0
wait $boss 2> /dev/null
until [ $k -gt 200 ] || [ -z "$(pid_of 0)$(pid_of 1)" ]; do sleep 0.05; k=$((k + 1)); done
t=$(since "$t")
if holds "$t < 10"; then ok "mpirun killed: its ranks leave in 10 s"
else not_ok "mpirun killed: its ranks leave in 10 s" "$t s"; fi
note "ranks left $t s after mpirun was killed"

begin mpirun -n 2 ./two.bin
kill -STOP "$(pid_of 1)"
kill -USR2 "$(pid_of 0)"; k=0
until [ $k -gt 200 ] || grep -q "rank 1 (pid" log; do sleep 0.05; k=$((k + 1)); done
kill -CONT "$(pid_of 1)"
kill -TERM "$(pid_of 1)"; wait $boss; rc=$?
exits 0 "SIGUSR2 says where each rank is" "rank 0 \(pid [0-9]+\) is (at|after) step" "rank 1 \(pid [0-9]+\) is (at|after) step"

rm -rf out
mpirun -n 2 ./below ./two.bin train --data data --steps 10000000 --out out --timeout 3 --quiet > log 2>&1 &
boss=$! k=0
until [ $k -gt 2000 ] || grep -qs '"step":2,' out/metrics.jsonl; do sleep 0.05; k=$((k + 1)); done
stuck=$(pid_of 1); kill -STOP "$stuck"
k=0; until [ $k -gt 200 ] || [ -s rc.0 ]; do sleep 0.05; k=$((k + 1)); done
kill -9 "$stuck" 2> /dev/null
wait $boss
rc=$(cat rc.0 2> /dev/null)
exits 5 "a hang ends after --timeout and says where" "nothing moved for 3 s" "rank 1 \(pid $stuck\) is "
