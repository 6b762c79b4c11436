#!/bin/sh
# cluster.sh -- dpc cluster probe measures this machine, plans use what it says.
. "$(dirname "$0")/lib.sh"

run "$dpc" cluster probe -o here.lua
exits 0 "probe measures one rank and two" "^dpc: 1 rank" "^dpc: 2 ranks"
for word in f32 bf16 conv_f32 conv_bf16 work bandwidth launch wake; do
    if [ $word = launch ] && [ -n "${REPORTS:-}" ]; then
        skip "probe: launch" "of sanitizers' checks a launch is the least part"
        continue
    fi
    # Between what a core of long ago did and what none will: a unit is wrong.
    n=$(grep -o "\<$word = [0-9.e+-]*" here.lua | awk -v w="$word" '
        w == "launch" || w == "wake" { bad += $3 < 1e-8 || $3 > 1e-2; next }
        /[0-9]/ { bad += $3 < 1e7 || $3 > 1e15; n++ }
        END { print bad + 0 }')
    if [ "$n" = 0 ] && grep -q "\<$word = " here.lua; then ok "probe: $word"
    else not_ok "probe: $word" "$(cat here.lua)"; fi
done
"$dpc" cluster show ./here.lua > shown.lua 2> log
grep -v '^--' here.lua | cmp - shown.lua >> log 2>&1
rc=$?
exits 0 "its file is read back"
for ranks in 1 2; do
    run "$dpc" sim "$root/models/mlp.lua" --ranks $ranks --cluster here.lua
    exits 0 "sim by its rates, $ranks ranks" "^train: [0-9.]+ ms a step"
done
run "$dpc" compile "$root/models/mlp.lua" --cluster here.lua -o bin
exits 0 "compile by its rates" "a rank holds"
