# hosts.sh -- one job over two hosts: network namespaces that a veth pair
# joins, each with a token bucket (tc-tbf) on its end.  mpirun starts the
# second rank through an agent that enters its namespace, under a host name of
# its own, so that MPI sees two nodes.
. "$(dirname "$0")/lib.sh"

a=dpca$$ b=dpcb$$ net=10.77.$(($$ % 256))

link_down() {
    ip netns del "$a" 2> /dev/null
    ip netns del "$b" 2> /dev/null
}

link_up() {
    ip netns add "$a" && ip netns add "$b" &&
    ip link add va netns "$a" type veth peer name vb netns "$b" &&
    ip -n "$a" addr add "$net.1/24" dev va &&
    ip -n "$b" addr add "$net.2/24" dev vb &&
    ip -n "$a" link set lo up && ip -n "$b" link set lo up &&
    ip -n "$a" link set va up && ip -n "$b" link set vb up
}

# Both ends at so many bytes a second.
link_rate() {
    burst=$(($1 / 100 + 20000))
    for end in "$a va" "$b vb"; do
        ip netns exec ${end% *} tc qdisc replace dev ${end#* } root tbf \
            rate $((8 * $1))bit burst $burst latency 50ms || return 1
    done
}

for word in ip tc unshare mpirun; do
    command -v $word > /dev/null || { skip hosts "no $word"; exit 0; }
done
trap 'link_down; test -n "${DPC_TEST_TMP:-}" || rm -rf "$top"' EXIT
link_up 2> log ||
    { skip hosts "no network namespaces: $(tail -1 log)"; exit 0; }
link_rate 1000000000 2> log ||
    { skip hosts "no token buckets: $(tail -1 log)"; exit 0; }

cat > agent <<EOF
#!/bin/sh
shift
exec ip netns exec $b unshare --uts sh -c "hostname dpcb; cd $PWD; \$*"
EOF
chmod +x agent

# hosts N BIN ARGS...: so many ranks on each.
hosts() {
    each=$1; shift
    run ip netns exec "$a" unshare --uts sh -c 'hostname dpca; exec "$@"' sh \
        mpirun --mca plm rsh --mca plm_rsh_agent "$PWD/agent" \
        --mca btl tcp,self --mca btl_tcp_if_include "$net.0/24" \
        --mca oob_tcp_if_include "$net.0/24" -x DPC_SERIAL \
        -n $((2 * each)) --host "$net.1:$each,$net.2:$each" "$@"
}

# Losses of two runs, step by step, the same to 1e-6.
alike() {
    field loss "$1/metrics.jsonl" > one; field loss "$2/metrics.jsonl" > two
    paste one two | awk '{ d = $1 - $2; n++; bad += d * d > 1e-12 * $1 * $1 }
        END { exit !(n > 3 && !bad) }'
}

"$tool" idx data 512 12 12 > log 2>&1
export DPC_SERIAL=0

# ---- the same losses, whatever is between the ranks ----

compile deep deep --ranks 2 || { not_ok "deep compiles" "exit $?"; exit; }
train="train --data data --steps 6 --log-every 1"
ranks 2 deep $train --out near || not_ok "two ranks of one host" "exit $rc"
hosts 1 ./deep $train --out far
exits 0 "two hosts train, and know that they are two" "2 nodes x 1"
if alike near far; then ok "over hosts as on one"
else not_ok "over hosts as on one" "$(paste one two | head -3 | tr '\n' ';')"
fi
export DPC_SERIAL=1
hosts 1 ./deep $train --out serial
export DPC_SERIAL=0
if [ "$rc" = 0 ] && alike far serial; then ok "without overlap the same"
else not_ok "without overlap the same" "exit $rc"
fi

# ---- two ranks a host: a sum crosses the link once ----

sent() { ip netns exec "$a" cat /sys/class/net/va/statistics/tx_bytes; }

options="--ranks 4 --define width=512"
compile deep four $options || not_ok "four compiles" "exit $?"
ranks 4 four $train --out near4 || not_ok "four ranks of one host" "exit $rc"
before=$(sent)
hosts 2 ./four $train --out far4
bytes=$(($(sent) - before))
exits 0 "two hosts of two ranks train" "4 ranks = 2 nodes x 2"
if alike near4 far4; then ok "sums by node as by rank"
else not_ok "sums by node as by rank" "$(paste one two | tr '\n' ';')"
fi
# Of a sum of n numbers over four ranks one rank's share of a ring is 1.5 n.
whole=$("$dpc" sim "$models/deep.lua" $options --json |
    sed 's/.*"bytes_sent": \([0-9]*\).*/\1/')
whole=$((whole * 6 * 2 / 3))
note "six steps sum $whole bytes, the link carried $bytes each way"
if holds "$bytes < 1.2 * $whole + 1000000"; then ok "a sum crosses once"
else not_ok "a sum crosses once" "$bytes of $whole bytes"
fi

# ---- overlap, where a step sends as long as it computes ----

# What the kernel does to send costs cores, too: a batch at which that is little
# beside computing.
"$tool" idx many 4096 12 12 > log 2>&1
# For the gate the ways take turns, five times each: a machine's pace changes.
rounds=1
test -z "${DPC_GATE:-}" || rounds=5
middle() { sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }

# Median seconds of the last ten of 13 steps.
step() {
    hosts 1 ./wide train --data many --steps 13 --log-every 1 --out "$1" \
        --metrics "$1.jsonl" --resume none
    field step_s "$1.jsonl" | tail -10 | middle
    rm -rf "$1" "$1.jsonl"
}

options="--ranks 2 --partitioner zero --define batch=2048
    --define width=512 --define depth=10"
compile deep wide $options || not_ok "wide compiles" "exit $?"
bytes=$("$dpc" sim "$models/deep.lua" $options --json |
    sed 's/.*"bytes_sent": \([0-9]*\).*/\1/')
export OMP_NUM_THREADS=1
free=$(for i in $(seq $rounds); do step free; done | middle)
link_rate "$(awk "BEGIN { printf \"%d\", $bytes / $free }")" > log 2>&1
for i in $(seq $rounds); do
    step beside >> besides
    DPC_SERIAL=1; step after >> afters; DPC_SERIAL=0
done
beside=$(middle < besides) after=$(middle < afters)
note "a step computes $free s, sends $bytes bytes in as many;" \
    "together $beside s, one after the other $after s:" \
    "$(awk "BEGIN { printf \"%.2f\", $beside / $after }") (ideal 0.67;" \
    "of twice the free step $(awk "BEGIN { printf \"%.2f\",
        $beside / (2 * $free) }"))"
# A busy machine has no core for the other stream: the gate is for a quiet one.
if [ -n "${DPC_GATE:-}" ] && ! holds "$beside <= 0.78 * $after"; then
    not_ok "overlap" "$beside of $after s"
elif holds "$beside < $after"; then
    ok "sending hides behind computing"
else
    not_ok "sending hides behind computing" "$beside of $after s"
fi
