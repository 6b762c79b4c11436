#!/bin/sh
# plan.sh -- dpc plan prices plans, auto finds one that the others do not beat.
. "$(dirname "$0")/lib.sh"
mlp=$root/models/mlp.lua

run "$dpc" plan "$mlp" --ranks 4 --micro 1 --partitioner auto -o auto.lua
exits 0 "auto: every shipped partitioner is a row" "^ddp " "^zero " \
    "^zero3 " "^ulysses -P sp=2 " "^megatron -P tp=2 " "^megatron -P tp=4 "
sed -n "/ refused: /d;s/ -P [a-z]*=[a-z0-9]*//g;/^[a-z0-9]* \+1 /p" log |
    awk '{ print $1, $2, $3 }' > auto.times
if sort -c -s -n -k3 auto.times 2>&1; then ok "auto: the quickest stands first"
else not_ok "auto: the quickest stands first" "$(cat auto.times)"; fi
if grep -q "sp=true" log; then
    not_ok "auto: a plan of other words that is the same stands there once" \
        "$(grep megatron log)"
fi
"$dpc" verify "$mlp" --ranks 4 --plan auto.lua > log 2>&1
rc=$?
exits 0 "the plan that auto wrote is read back and proven" "^train: "
run "$dpc" compile "$mlp" --ranks 2 --micro 1 --partitioner auto -o bin
exits 0 "compile takes auto" "a rank holds"

cluster() { echo "return { target = \"host\", $1 }" > cluster.lua; }
# refused WORDS VALUES...: each value in the word's place, with its line.
refused() {
    words=$1; shift
    for bad; do
        cluster "$(echo "$words" | sed "s|@|$bad|")"
        run "$dpc" plan "$mlp" --ranks 2 --cluster cluster.lua
        exits 1 "cluster: $(echo "$words" | sed "s|@|$bad|")" \
            "^cluster.lua:1: error: [a-z0-9]+: .*wanted"
    done
}
cluster 'memory = 2^20'
run "$dpc" plan "$mlp" --ranks 2 --partitioner auto --cluster cluster.lua
exits 3 "too little memory names what comes nearest" "nearest: [a-z]+ .*MiB;"
run "$dpc" compile "$mlp" --cluster cluster.lua -o no
exits 3 "compile refuses what does not fit" "train needs [0-9.]+ MiB a rank"
test ! -e no || not_ok "nothing is written that does not fit" "$(ls -l no)"
refused 'levels = { { bandwidth = @ } }' 0 -1 0/0 1/0 '"fast"'
refused 'levels = { { bandwidth = 1, latency = @ } }' -1 0/0 1/0
refused 'levels = { { bandwidth = 1, fanout = @ } }' 0 -8 0/0 1e9
refused 'rates = { bandwidth = @ }' 0 -1 0/0 1/0
refused 'rates = { { threads = 1, f32 = @ } }' 0 -1 0/0
refused 'memory = @' 0 1 -1 0/0 1/0
refused 'cores = @' 0 -1 1e9 0/0 1/0

"$dpc" cluster show 16x8xa100-80 > shown.lua 2> log
"$dpc" cluster show ./shown.lua 2>> log | cmp - shown.lua >> log 2>&1
rc=$?
exits 0 "a cluster that was printed is read back"
run "$dpc" plan "$mlp" --cluster 2x8xa100-80
exits 0 "a cluster gives the ranks" '^ddp .*'
run "$dpc" plan "$mlp" --cluster a100-80 --ranks 16
exits 2 "more ranks than the cluster has" 'the cluster "a100-80" has 8'
run "$dpc" plan "$mlp" --cluster a100
exits 2 "a cluster that there is not" 'did you mean "h100"' 'h200 host'
for word in ranks micro; do
    run "$dpc" plan "$mlp" --$word 0
    exits 2 "--$word 0" "\"0\" is no whole number from 1"
done

run "$dpc" sim "$mlp" --ranks 2 --trace trace.json
exits 0 "sim says what a step takes" "^train: [0-9.]+ ms a step: .* exposed; "
if grep -q '"ph": "X"' trace.json && grep -q '"name": "arena"' trace.json; then
    ok "sim writes a timeline"
else not_ok "sim writes a timeline" "$(head -2 trace.json)"; fi

run "$dpc" sim "$mlp" --ranks 2 --trace trace.json.gz
gzip -dc trace.json.gz 2>> log | cmp - trace.json >> log 2>&1
rc=$?
exits 0 "packed where the name says so"
run "$dpc" sim "$mlp" --trace -
exits 2 "no file" "--trace -: the name of a file is wanted"
run "$dpc" plan "$mlp" -o one --html one
exits 2 "two results in one file" '-o and --html are both "one"'

run "$dpc" sim "$mlp" --ranks 4 --micro 2 --partitioner pipeline -P pp=2
exits 0 "and how well it is used" "bubble [0-9.]+ %" \
    "MFU [0-9.]+ %, exposed communication [0-9.]+ % of the step" \
    "^  arena .* most [0-9.]+ MiB at [0-9.]+ ms"
"$dpc" sim "$mlp" --ranks 4 --micro 2 --partitioner pipeline -P pp=2 --json \
    > sim.json
if python3 -c 'import json
d = json.load(open("sim.json"))
assert 0 < d["mfu"] < 1 and 0 < d["bubble"] < 1 and 0 < d["exposed"] < 1
for r in d["roles"]:
    most, when = max(r["memory_bytes"]), r["memory_seconds"]
    assert 0.95 * r["arena_bytes"] <= most <= r["arena_bytes"], r
    assert when == sorted(when) and len(when) == len(r["memory_bytes"])
    assert r["flops"] > 0 <= r["flops_again"]'; then
    ok "its memory by time is what was planned"
else not_ok "its memory by time is what was planned" "$(head -c 300 sim.json)"; fi

run "$dpc" plan "$mlp" --ranks 2 --partitioner auto -P tp=2
exits 2 "auto takes no option of those it tries" "auto sets the options"
run "$dpc" compile "$mlp" --exact --partitioner zero
exits 2 "exact stands alone" "leave --partitioner out"

run "$dpc" plan "$mlp" --exact --partitioner auto
exits 2 "beside auto, too" "leave --partitioner out"
run "$dpc" plan "$mlp" --partitioner auto --recompute bogus
exits 2 "a word that is none, before anything is tried" '"bogus" is none of'
run "$dpc" plan "$mlp" -P recompute=none --recompute full
exits 2 "one word, said twice" "--recompute full and -P recompute=none"
run "$dpc" plan "$mlp" --ranks 40000
exits 3 "ways to fit have no more ranks than there can be" "^help: --recompute"

# A plan file says all of a plan; flags may not say otherwise.
"$dpc" plan "$mlp" --ranks 2 --micro 2 -o mine.lua 2> log
run "$dpc" plan "$mlp" --plan mine.lua --micro 2
exits 0 "a plan file's turns stand in the table" "^mine.lua +2 "
disagrees() {
    run "$dpc" plan "$mlp" --plan mine.lua "--$1" "$2"
    exits 2 "a plan file and --$1 $2" "--$1 $2.*\"mine.lua\" (says|has) $3"
}
disagrees micro 4 2
disagrees dtype bf16 f32
disagrees recompute full selective
disagrees cluster 1x1xa100-80 2
"$dpc" plan "$mlp" --ranks 2 --micro 2 --offload states -o mine.lua 2> log
disagrees offload params states
echo 'return {}' > bare.lua
run "$dpc" plan "$mlp" --ranks 2 --cluster ./bare.lua -o bare.plan.lua
exits 0 "a cluster that says nothing is this machine" "^ddp "
run "$dpc" plan "$mlp" --partitioner auto --plan mine.lua
exits 2 "a plan file beside auto" "exclude each other"

# What a partitioner may ask of g, and what not.
echo 'return function(g)
    local plan = require("ddp")(g)
    local c, why = g.cost({ mesh = plan.mesh, leaf = plan.leaf })
    print(("cost %.3f %.3f %s"):format(1e3 * c.step, 1e3 * c.compute, c.fits))
    assert(c.memory > c.leaves and not pcall(g.cost, { mesh = {} }))
    return plan
end' > asks.lua
run "$dpc" plan "$mlp" --ranks 2 --micro 2 --partitioner ./asks.lua
exits 0 "g.cost is priced" "^cost [0-9.]+ [0-9.]+ true"
test "$(sed -n 's/^cost \(.*\) true/\1/p' log)" = "$(sed -n \
    's/^.*asks.lua *2 *\([0-9.]*\) *\([0-9.]*\) .*/\1 \2/p' log)" ||
    not_ok "as dpc plan prices it" "$(cat log)"
run "$dpc" plan "$mlp" --ranks 2 --plan asks.lua
exits 1 "a partitioner is no plan file" "--partitioner asks.lua"
wrong() {
    echo "return function(g) $1 end" > wrong.lua
    run "$dpc" plan "$mlp" --ranks 2 --partitioner ./wrong.lua
    exits 1 "a partitioner that says $1" "^./wrong.lua:1: error: $2"
}
wrong "g.ranks = 3" "the view of the model is read only: .ranks"
wrong "g.leaves[1].op = 3" "the view of the model is read only: .op"
wrong "g.nodes('nope')" "nodes: the model has no entry .nope.; there are eval"
wrong "g.cost{mesh = {{'dp', 3}}, leaf = {}}" "the mesh has 3 ranks, --ranks"

# The page: it needs nothing else, and equal plans make equal bytes.
for k in 1 2; do
    run "$dpc" plan "$mlp" --ranks 2 --micro 1 --partitioner auto \
        --html page$k.html -o page.lua
done
grep -q '<svg ' page1.html && grep -q 'What else was tried' page1.html &&
    grep -q 'mlp.in' page1.html && grep -q 'recompute = ' page1.html
rc=$?
exits 0 "a page draws the plan"
cmp page1.html page2.html > log 2>&1 && ! grep -nE 'https?:|src=|@import|url\(' \
    page1.html > log
rc=$?
exits 0 "equal bytes, and nothing from elsewhere"
run "$dpc" sim "$mlp" --ranks 4 --partitioner pipeline -P pp=2 --html pipe.html
grep -q '>role 1<' pipe.html && grep -q '<h2>Stages' pipe.html
rc=$?
exits 0 "of a pipeline all roles"
run "$dpc" plan "$mlp" --html no/page.html
exits 5 "a page that cannot be written" "no/page.html: error: cannot be written"

# What backward makes again: the plan says it, prints it and reads it back.
attn=$models/attn.lua
holds_of() { sed -n 's/.* \([0-9.]*\) MiB of arena.*/\1/p' log; }
for word in none selective full; do
    run "$dpc" compile "$attn" -D batch=64 --recompute $word -o bin
    exits 0 "recompute=$word compiles" "a rank holds"
    holds_of > "arena.$word"
done
test "$(cat arena.none)" != "$(cat arena.full)" \
    || not_ok "full lowers the arena" "$(cat arena.none arena.full)"
"$dpc" plan "$attn" -D batch=64 -P recompute=full -o full.lua 2> log
run "$dpc" compile "$attn" -D batch=64 --plan full.lua -o bin
if [ "$(holds_of)" = "$(cat arena.full)" ]; then ok "its plan is read back"
else not_ok "its plan is read back" "$(cat full.lua)"; fi
run "$dpc" compile "$attn" -D batch=64 --recompute auto:1MiB -o bin
exits 3 "memory that no recompute can reach: three ways to fit" \
    "needs .* \"auto:1048576\" allows 1.0" "help: --recompute auto:.* MiB a rank"
n=$(grep -c "^help: --" log)
test "$n" = 3 || not_ok "three ways" "$n"

# What goes to the host's memory follows from what a rank has.
small() {
    sed "s/return {/return { memory = $1,/" \
        "$root/models/clusters/host.lua" > small.lua
    shift
    run "$dpc" plan "$attn" -D batch=64 --cluster ./small.lua \
        --recompute none "$@" -o moved.lua
}
small 64e6 --offload auto
if [ $rc = 0 ] && ! grep -q offload moved.lua; then ok "nothing, as it fits"
else not_ok "nothing, as it fits" "$(cat moved.lua)"; fi
small 2.55e6 --offload auto
if grep -q 'offload = "states",' moved.lua; then ok "states first"
else not_ok "states first" "$(cat moved.lua)"; fi
small 2.3e6 --offload auto
if grep -q 'offload = "states,activations",' moved.lua; then
    ok "then activations"
else not_ok "then activations" "$(cat moved.lua)"; fi
small 2.3e6
exits 3 "a way to fit" "help: --offload states,activations: .* MiB a rank"
run "$dpc" compile "$attn" -D batch=64 --cluster ./small.lua \
    --recompute none --emit schedule
exits 0 "texts need no memory" "dpc: warning: train needs .* MiB .* has 2.2"
n=$(grep -c warning log)
test "$n" = 1 || not_ok "one warning" "$n"
run "$dpc" compile "$attn" --emit schedule -o moved
exits 2 "a name for a binary that is not wanted" \
    "-o moved: --emit schedule makes no binary; --emit schedule,bin would"

# Of a large model ways to fit are judged, in seconds; none takes more.
echo '{ "num_layers": 18 }' > c18.json
run "$dpc" plan "$root/models/qwen_image/edit.lua" --config c18.json \
    --cluster 16xa100-40 --ranks 1
exits 3 "a large model: more ranks, until its leaves fit" \
    "^help: .*--ranks [24] --partitioner zero3: about 3[0-9.]* MiB a rank$" \
    "^help: --offload .*, the nearest that was found"
run "$dpc" plan "$attn" --offload auto,states
exits 2 "auto beside a word" "\"auto\" chooses by itself"

# A binary's tables, read back from its file.
run "$dpc" compile "$mlp" --ranks 4 --partitioner pipeline -P pp=2 -o pipe
./pipe info > info
run "$dpc" inspect pipe
if [ $rc = 0 ] && cmp -s log info; then ok "inspect says what the binary does"
else not_ok "inspect says what the binary does" "exit $rc"; fi
run "$dpc" inspect pipe --schedule=2 --memory --entry train
exits 0 "a rank's schedule" "^rank 2 is at pp=1 dp=0: role 1" \
    "^train of role 1: [0-9]+ steps" "recv .* from role 0, hop" \
    "^fullest at step [0-9]+" "^ +[0-9]+ arena +[0-9]+ +[0-9]+ f32"
if grep -q "of role 0:" log; then not_ok "of that rank alone" "role 0"; fi
"$dpc" inspect pipe --schedule=role0 --json > tables.json
if python3 -c 'import json
d = json.load(open("tables.json"))
p = [p for p in d["programs"] if p["entry"] == "train"]
assert len(p) == 1 and p[0]["role"] == 0 and len(p[0]["steps"]) > 5
used = {b for s in p[0]["steps"] for b in s["buffers"]}
assert used <= set(range(len(p[0]["buffers"])))'; then ok "as JSON"
else not_ok "as JSON" "$(head -c 300 tables.json)"; fi
# Copies of the host's memory have a stream and spaces; halos are no hops.
run "$dpc" compile "$mlp" --offload states -o moved
run "$dpc" inspect moved --schedule --memory --entry train
exits 0 "steps that copy from the host" " copies +copy " " host_leaves "
run "$dpc" compile "$root/tests/models/conv.lua" --ranks 2 \
    --partitioner spatial -P sp=2 -o rows
run "$dpc" inspect rows --schedule --entry train
exits 0 "rows of neighbours" " collect +coll .* halo sp, [0-9]+ of f32"
run "$dpc" plan "$mlp" --offload states --html moved.html -o moved.lua
if [ $rc = 0 ] && grep -q ">copies<" moved.html; then ok "a page with copies"
else not_ok "a page with copies" "exit $rc"; fi
strip -o bare pipe && run "$dpc" inspect bare
exits 0 "a stripped one" "^model +mlp"
run "$dpc" inspect pipe --schedule=4
exits 2 "a rank that there is not" "there is no rank 4: it has 4 ranks"
run "$dpc" inspect "$mlp"
exits 1 "no binary" "mlp.lua: error: is no binary that dpc made: .* no program"
run "$dpc" inspect /bin/sh
exits 1 "a program of others" "error: is no binary that dpc made"
head -c 100000 pipe > cut
run "$dpc" inspect cut
exits 1 "one that is cut off" "it is cut off"
at=$(readelf -SW pipe | sed -n 's/^.* \.dpc_unit  *PROGBITS  *[0-9a-f]* \([0-9a-f]*\) .*/\1/p')
printf '\001' | dd of=pipe bs=1 seek=$((0x$at)) conv=notrunc 2> /dev/null
run "$dpc" inspect pipe
exits 1 "one of another layout" "tables have layout 1, and this dpc reads [0-9]"
