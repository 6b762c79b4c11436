#!/bin/sh
# cli.sh -- the command line: installed, completed, explained; same bytes out.
. "$(dirname "$0")/lib.sh"
mlp=$root/models/mlp.lua

# Every claim is one command line that must succeed.
claim() {
    name=$1; shift
    if sh -c "$*" > log 2>&1 < /dev/null; then ok "$name"
    else not_ok "$name" "exit $?"; fi
}
export dpc tool mlp BUILD

claim "each command explains itself" 'for c in compile check print opt eval \
    run demo doctor ops passes completion help version; do
    "$dpc" $c --help | grep -q "^usage: dpc $c" || exit 1; done'
claim "completion is valid bash" '"$dpc" completion bash | bash -n'
for s in zsh fish; do
    if command -v $s > /dev/null; then
        claim "completion is valid $s" "\"\$dpc\" completion $s | $s -n"
    else skip "completion is valid $s" "no $s"; fi
done
if command -v groff > /dev/null && test -d /usr/share/groff; then
    claim "the man page formats" '"$dpc" help --man |
        groff -mdoc -Tascii -ww > page 2> bad && test -s page &&
        ! test -s bad'
else skip "the man page formats" "no groff"; fi
claim "lists are JSON" '"$dpc" ops --json | "$tool" json &&
    "$dpc" passes --json | "$tool" json &&
    "$dpc" check --json "$mlp" | "$tool" json'

twice="a model compiles twice to the same bytes"
if test -n "${REPORTS:-}"; then
    skip "$twice" "sanitizers write the names of compiled files into it"
else claim "$twice" \
    '"$dpc" compile -q --no-cache "$mlp" -o one &&
     "$dpc" compile -q --no-cache "$mlp" -o two && cmp one two'
fi
claim "a plan that was printed compiles to the same bytes" \
    '"$dpc" compile -q "$mlp" --ranks 2 --micro 2 --emit plan,bin -o a &&
     "$dpc" compile -q "$mlp" --plan mlp.plan.lua -o b && cmp a b'
claim "a printed graph reads back" \
    '"$dpc" print "$mlp" --entry train > g.ir &&
     "$dpc" opt --pass=none g.ir 2>/dev/null; "$dpc" opt --pass=grad g.ir > h.ir &&
     "$dpc" eval --field g.ir > x && "$dpc" eval --field h.ir > y && cmp x y'

claim "a home elsewhere works" \
    'mkdir -p home/bin home/lib/dpc home/share/dpc/runtime &&
     cp "$dpc" home/bin && cp "$BUILD"/libdpc_rt.a "$BUILD"/libdpc_rt.link \
        home/lib/dpc &&
     cp -r "$DPC_HOME"/models home/share/dpc &&
     mkdir -p home/share/dpc/passes &&
     cp -r "$DPC_HOME"/passes/partitioners home/share/dpc/passes &&
     cp "$DPC_HOME"/runtime/dpc_rt.h home/share/dpc/runtime &&
     unset DPC_HOME && cd home &&
     bin/dpc compile -q share/dpc/models/mlp.lua -o m && ./m --help'

code() {
    want=$1 name=$2; shift 2
    "$dpc" "$@" > log 2>&1 < /dev/null
    rc=$?
    test $rc = "$want" && ok "$name" || not_ok "$name" "exit $rc"
}
code 1 "a model that is not there exits 1" check nowhere.lua
code 2 "an unknown option exits 2" check --jso "$mlp"
code 2 "an unknown pass exits 2" print --after=nothing "$mlp"
code 5 "a folder that cannot be made exits 5" compile "$mlp" \
    --emit graph --emit-dir /proc/none
CC=no-such-cc code 5 "a compiler that is absent exits 5" compile --no-cache \
    "$mlp" -o none
