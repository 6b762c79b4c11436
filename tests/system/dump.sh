#!/bin/sh
# dump.sh -- named values into files, and where two folders of them part.
. "$(dirname "$0")/lib.sh"
cat > model.lua <<'EOF'
local function net(x)
  return dpc.scope("net", function()
    local h = dpc.scope("a", function()
      return x * dpc.param("w", { 3 }, { init = function(d) return dpc.const(2, d) end })
    end)
    dpc.tap("middle", h + 1)
    return dpc.scope("b", function()
      return h:tanh(), h:exp()
    end)
  end)
end
local function out(x) return { out = (net(x)) } end
return { parts = { net = function(_, i) return out(i.x) end },
         entries = { eval = function() return out(dpc.input("x", { 2, 3 })) end } }
EOF
cat > cases.lua <<'EOF'
return { model = "model.lua",
  { name = "one", part = "net", inputs = { x = { 2, 3 } },
    expect = { params = 3, mse = 1.0 } } }
EOF
dump() {
    what=$1 dir=$2; shift 2
    run "$dpc" eval --cases cases.lua --dump "$what" --dump-dir "$dir" "$@"
}

dump '*,grad.*' ours
exits 6 "a case dumps, whatever it expects" '^9 values in ours'
order=$(cut -f1 ours/order | tr '\n' ' ')
test "$order" = "x target net.a net.middle net.b net.b@1 net net@1 grad.net.a.w " &&
    ok "in the order of the model" || not_ok "in the order of the model" "$order"
grep -q "^net.b	model.lua:8$" ours/order && ok "with its line" ||
    not_ok "with its line" "$(cat ours/order)"
dump net.b part
test "$(ls part | tr '\n' ' ')" = "net.b.npy net.b@1.npy order " &&
    ok "what a scope returns has its name" ||
    not_ok "what a scope returns has its name" "$(ls part)"
dump net.c none
exits 6 "a name that nothing has" \
    'nothing is called "net.c"; did you mean "net.[ab]"'

dump '*' host --host
run "$dpc" diff ours host
exits 0 "the binary's values are the evaluator's" \
    '^8 values compared, 0 differ' '^only in ours: grad.net.a.w'
"$tool" array other.npy f4 2 3
mkdir theirs && cp host/*.npy theirs && cp other.npy theirs/net.b.npy
run "$dpc" diff ours theirs
exits 6 "the first that differs is named, with its line" \
    '^DIFF net.b: f64\[2,3\], relative L2 .*, most at \[[01],[012]\]: .*\(model.lua:8\)$'
run "$dpc" diff theirs ours --json
exits 6 "as JSON" '"name": "net.b", "at": "model.lua:8"'
"$tool" json < log && ok "which is JSON" || not_ok "which is JSON" "it is none"
"$tool" array theirs/net.b.npy f4 6 1
run "$dpc" diff ours theirs -v
exits 6 "other sizes are compared in order" \
    'note: net.b is f32\[6,1\] in the other'
"$tool" array theirs/net.b.npy f4 7 1
run "$dpc" diff ours theirs
exits 6 "another number of elements" '^DIFF net.b: f64\[2,3\] and f32\[7,1\]'
# npy FILE TYPE FORTRAN BYTES: an array [2, 3].
npy() {
    { printf '\223NUMPY\001\000\166\000'
      printf '%-117s\n' "{'descr': '$2', 'fortran_order': $3, 'shape': (2, 3), }"
      printf "$4"; } > "$1"
}
mkdir rows columns
npy rows/x.npy '|u1' False '\1\2\3\4\5\6'
npy columns/x.npy '|u1' True '\1\4\2\5\3\6'
run "$dpc" diff rows columns --tol 0
exits 0 "columns first are the same numbers" '^1 values compared, 0 differ'
npy rows/x.npy '<f2' False '\0\176\0\0\0\0\0\0\0\0\0\0'
npy columns/x.npy '<f2' True '\0\0\0\0\0\176\0\0\0\0\0\0'
run "$dpc" diff rows columns
exits 6 "a NaN elsewhere is another value" '^DIFF x: .*NaN: 1 and 1'
npy columns/x.npy '<c8' True ''
run "$dpc" diff rows columns
exits 1 "a type that is not read" "columns/x.npy: error: an array of '<c8'; wanted"
mkdir empty strange && cp other.npy strange
run "$dpc" diff ours empty
exits 1 "a folder without values" 'holds no .npy file'
run "$dpc" diff ours strange
exits 1 "no name in common" 'shares no name'
run "$dpc" diff ours gone
exits 1 "no folder" '^gone: error'

run "$dpc" eval model.lua --entry eval --dump net.a --dump-dir drawn
exits 0 "an entry is dumped, too" '^1 values in drawn'
run "$dpc" compile model.lua -o bin --dump net.middle
"$tool" array x.npy f4 2 3
ranks 1 bin eval --data x.npy --resume none --output dump.net.middle=m.npy
exits 0 "a binary has it as an output"
test -s m.npy && ok "which it writes" || not_ok "which it writes" "$(ls)"
