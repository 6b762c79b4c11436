#!/bin/sh
# plan.sh -- dpc plan prices plans, auto finds one that the others do not beat.
. "$(dirname "$0")/lib.sh"
mlp=$root/models/mlp.lua

run "$dpc" plan "$mlp" --ranks 4 --micro 1 --partitioner auto -o auto.lua
exits 0 "auto: every shipped partitioner is a row" "^ddp " "^zero " \
    "^zero -P gather=use " "^megatron -P tp=2 " "^megatron -P tp=4 "
sed -n "s/ -P / /p;/^ddp\|^zero \+[0-9]/p" log | awk "{ print \$1, \$2, \$(NF - 5) }" > auto.times
if sort -c -n -k3 auto.times 2>&1; then ok "auto: the quickest stands first"
else not_ok "auto: the quickest stands first" "$(cat auto.times)"; fi
"$dpc" verify "$mlp" --ranks 4 --plan auto.lua > log 2>&1
rc=$?
exits 0 "the plan that auto wrote is read back and proven" "^train: "
run "$dpc" compile "$mlp" --ranks 2 --micro 1 --partitioner auto -o bin
exits 0 "compile takes auto" "a rank holds"

cluster() { echo "return { target = \"host\", $1 }" > cluster.lua; }
cluster 'memory = 1e5'
run "$dpc" plan "$mlp" --ranks 2 --partitioner auto --cluster cluster.lua
exits 3 "too little memory names what comes nearest" "nearest: [a-z]+ .*MiB;"
for bad in 0 -1 0/0 1/0 '"fast"'; do
    cluster "levels = { { bandwidth = $bad } }"
    run "$dpc" plan "$mlp" --ranks 2 --cluster cluster.lua
    exits 1 "a bandwidth of $bad is refused" "cluster.lua: error: bandwidth: "
done

run "$dpc" sim "$mlp" --ranks 2 --trace trace.json
exits 0 "sim says what a step takes" "^train: [0-9.]+ ms a step: .* exposed; "
if grep -q '"ph": "X"' trace.json && grep -q '"name": "arena"' trace.json; then
    ok "sim writes a timeline"
else not_ok "sim writes a timeline" "$(head -2 trace.json)"; fi

run "$dpc" plan "$mlp" --ranks 2 --partitioner auto -P tp=2
exits 2 "auto takes no option of those it tries" "auto sets the options"
run "$dpc" compile "$mlp" --exact --partitioner zero
exits 2 "exact stands alone" "leave --partitioner out"
