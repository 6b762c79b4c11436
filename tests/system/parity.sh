#!/bin/sh
# parity.sh -- models against numbers of their originals, docs/parity.md: all
# by the evaluator, some of each model by a binary too (`./build.sh parity`:
# all).
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 5

agree tests/parity/prior.lua --host --case P2
agree tests/parity/decoder.lua --host --case D1
quick                                     # shipped flags: ./build.sh parity

g=tests/golden/cases.lua
cases $g --host --case echo --case walk --case descent
if [ "$said" = "3 passed, 0 failed, 0 skipped" ]; then
    ok "inputs, draws and steps reach a case's binary"
else not_ok "inputs, draws and steps reach a case's binary" "$said"; fi
cases $g --host --case descent --case echo --ranks 2
if [ "$said" = "2 passed, 0 failed, 0 skipped" ]; then
    ok "a case's binary may have two ranks"
else not_ok "a case's binary may have two ranks" "$said"; fi
cases $g --host --case wrong
if [ $rc = 6 ] && grep -q "^FAIL wrong on host: out.sum" "$work/log"; then
    ok "a binary's wrong number is told"
else not_ok "a binary's wrong number is told" "exit $rc, $said"; fi

cases $g --host --case cancels
if [ "$said" = "0 passed, 0 failed, 1 skipped" ] &&
    grep -q "^skip cancels: on host: f32 cannot hold it" "$work/log"; then
    ok "what f32 cannot hold is told, and not counted as passed"
else not_ok "what f32 cannot hold is told, and not counted as passed" "$said"
fi

# bf16 FILE CASE...: whole tensors within 3 % of the evaluator's.
bf16() {
    name=${1##*/}
    cases "$@" --host --dtype bf16
    case $said in
    [1-9]*" passed, 0 failed, 0 skipped") ok "$name in bf16" ;;
    *) not_ok "$name in bf16" "$said" ;;
    esac
}
bf16 tests/parity/prior.lua --case P1 --case "P4 ddim"
bf16 tests/parity/unet.lua --case U2
bf16 tests/parity/qwen.lua --case Q3
bf16 tests/parity/vqgan.lua --case V1

agree tests/parity/prior.lua --host --case P3
agree tests/parity/unet.lua --host --case U4
agree tests/parity/decoder.lua --host --case D6
agree tests/parity/qwen.lua --host --case Q2 --case Q6
for f in tests/parity/*.lua; do agree "$f"; done
