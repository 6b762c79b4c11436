#!/bin/sh
# laws.sh -- laws of the Lua library hold in a compiled binary too; the
# evaluator holds them in unit/test_nn.
. "$(dirname "$0")/lib.sh"
for m in along_laws attention_laws; do
    compile $m $m.bin || { not_ok "$m compiles" "exit $?"; continue; }
    ranks 1 $m.bin worst --out out --json
    worst=$(field worst log | tail -1)
    note "$m: off by $worst at most"
    if [ "$worst" ] && holds "$worst <= 2e-6"; then ok "$m hold"
    else not_ok "$m hold" "off by $worst"; fi
done
