#!/bin/sh
# docs.sh -- the examples of the documents do what is said beside them.
. "$(dirname "$0")/lib.sh"

# block FILE FIRST: the fenced block whose first line holds FIRST.
block() {
    awk -v first="$2" '/^```/ { inside = !inside; at = NR; found = 0; next }
        inside && NR == at + 1 && index($0, first) { found = 1 }
        inside && found' "$root/$1"
}

# works NAME COMMAND...: a claim.
works() {
    name=$1; shift
    run "$@"
    exits 0 "$name"
}

bare() { sed 's/ *--.*//; /^ *$/d' "$@"; }
block README.md "local function net" | bare > shown
bare "$root/models/mlp.lua" > whole
test -s shown && grep -vxFf whole shown > log
rc=$?
exits 1 "README.md: its model is models/mlp.lua"
block docs/models.md "-- mini.lua" > mini.lua
works "models.md: the model compiles" "$dpc" compile mini.lua -D batch=128 --ranks 2
block docs/models.md 'x:move("b n' > calls
{ echo 'return { entries = { train = function()
  local x = dpc.input("x", {2, 4, 128})
  local p = dpc.input("p", {2, 3, 4, 4})
  local v = dpc.input("v", {3})
  local q = dpc.input("q", {2, 2, 4, 64})
  local k = dpc.input("k", {2, 2, 5, 64})
  local out = {'
  sed 's/^x:move("bchw/p:move("bchw/; s/) *--.*/),/' calls
  echo '  }
  return { a = out[1], b = out[2], c = out[3], d = out[4] }
end } }'; } > sig.lua
works "models.md: its signatures are right" "$dpc" check sig.lua

block docs/parity.md "-- mine.lua" > mine.lua
works "parity.md: the sample case passes" "$dpc" eval --cases mine.lua
cp "$root/models/mlp.lua" .
block docs/plans.md "-- Tensor parallelism" > tp.lua
"$dpc" eval --field mlp.lua --entry train > one 2> log
run sh -c "'$dpc' eval --field mlp.lua --entry train --ranks 4 \
    --partitioner ./tp.lua | cmp - one"
exits 0 "plans.md: the partitioner changes no value"
block docs/passes.md "x = input" > u.ir
test -s u.ir || block docs/passes.md '$ cat u.ir' | sed -n '2,/^return/p' > u.ir
works "passes.md: the graph reads" "$dpc" eval --field u.ir
