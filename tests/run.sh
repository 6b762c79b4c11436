#!/bin/sh
# run.sh -- run the test programs and the text tests; one closing line.
#
#   BUILD=build sh tests/run.sh [--bless] [FILTER]
#
# unit     every program BUILD/tests/unit/test_*; cmocka counts its tests.
# golden   tests/golden/NAME.ir, error tests/error/NAME.lua: the first line
#          says the command, "# dpc opt --pass=simplify" ("%" in it is the
#          file, appended when absent; " ;" at its end: no file).
#          NAME.out holds stdout, stderr and a last line "exit N" unless it is
#          0.  --bless writes NAME.out anew.
# system   tests/system/NAME.sh prints "ok NAME", "not ok NAME: why",
#          "skip NAME: why"; what else it prints goes to the log.
# SUITE=NAME runs the like of tests/NAME instead of all these.
# Time limits are for what hangs, on a machine that ten others use.
# A test of which something is missing is skipped, with the reason.  The last
# column is seconds of cores, children included, which load does not change.
set -u
BUILD=${BUILD:-build} bless=0
test "${1:-}" = --bless && { bless=1; shift; }
filter=${1:-} pass=0 fail=0 skip=0
log=$BUILD/test.log
tmp=$(mktemp -d) || exit 5
trap 'rm -rf "$tmp"' EXIT
export DPC_HOME="$PWD"
export DPC_TEST_TMP="$tmp" TMPDIR="$tmp" NO_COLOR=1 DPC_BUILD="$BUILD"
export DPC_CACHE_DIR="$tmp/cache"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
: > "$log"

wanted() { case $1 in *"$filter"*) return 0 ;; esac; return 1; }
# Seconds of cores since the last call, into s.
spent() {
    times > "$tmp/times"
    s=$(awk -v old="${spent:-0}" 'NR == 2 { gsub("s", ""); for (i = 1; i < 3;
        i++) { split($i, t, "m"); n += 60 * t[1] + t[2] }
        printf "%.1f %.2f", n - old, n }' "$tmp/times")
    spent=${s#* } s=${s% *}
}
sum() { awk "/^ [0-9]+ $1 TEST/ { n += \$1 } END { print n + 0 }" "$tmp/out"; }

unit() {
    name=$(basename "$1" .c) prog=$BUILD/tests/unit/$(basename "$1" .c)
    if [ ! -x "$prog" ]; then
        echo "FAIL unit/$name: does not build"; fail=$((fail + 1)); return
    fi
    CMOCKA_MESSAGE_OUTPUT=STDOUT timeout 900 "$prog" > "$tmp/out" 2>&1
    rc=$?
    cat "$tmp/out" >> "$log"
    ok=$(grep -c '^\[ *OK *\]' "$tmp/out")
    bad=$(sum FAILED) skipped=$(sum SKIPPED)
    [ $rc -ne 0 ] && [ "$bad" = 0 ] && bad=1
    [ $rc -ne 0 ] && { echo "FAIL unit/$name (exit $rc)"; tail -25 "$tmp/out"; }
    pass=$((pass + ok)) fail=$((fail + bad)) skip=$((skip + skipped))
    spent
    printf '%-28s %4d ok %3d failed %3d skipped %6s s\n' "unit/$name" \
        "$ok" "$bad" "$skipped" "$s"
}

text() {
    line=$(head -1 "$1" | sed -n 's/^[-#]* *dpc //p')
    case $line in
    '')  return ;;                        # a part of another test
    *' ;') args=${line% ;} ;;             # no file
    *%*) args=$(echo "$line" | sed "s|%|$1|g") ;;
    *)   args="$line $1" ;;
    esac
    { timeout 300 "$BUILD/dpc" $args 2>&1; rc=$?
      [ $rc = 0 ] || echo "exit $rc"; } > "$tmp/out" </dev/null
    want=${1%.*}.out
    if [ $bless = 1 ]; then
        cp "$tmp/out" "$want"
    elif diff -u "$want" "$tmp/out" > "$tmp/diff" 2>&1; then
        pass=$((pass + 1)) n=$((n + 1))
    else
        echo "FAIL $1: dpc $args"; cat "$tmp/diff"; fail=$((fail + 1))
    fi
}

system() {
    name=$(basename "$1" .sh)
    name=$(basename "$(dirname "$1")")/$name
    timeout 3000 sh "$1" > "$tmp/out" 2>&1
    rc=$?
    cat "$tmp/out" >> "$log"
    grep -A9 '^not ok ' "$tmp/out" | sed 's/^not ok /FAIL /'
    grep '^skip ' "$tmp/out"
    good=$(grep -c '^ok ' "$tmp/out") bad=$(grep -c '^not ok ' "$tmp/out")
    skipped=$(grep -c '^skip ' "$tmp/out")
    [ $rc -ne 0 ] && { echo "FAIL $name (exit $rc)"; bad=$((bad + 1)); }
    pass=$((pass + good)) fail=$((fail + bad)) skip=$((skip + skipped))
    spent
    printf '%-28s %4d ok %3d failed %3d skipped %6s s\n' "$name" \
        "$good" "$bad" "$skipped" "$s"
}

# suite NAME: the shell tests of tests/NAME.
suite() {
    for t in tests/"$1"/*.sh; do
        [ "${t##*/}" != lib.sh ] && [ $bless = 0 ] && wanted "$t" &&
            system "$t"
    done
}

if [ -n "${SUITE:-}" ]; then
    suite "$SUITE"
    echo "$pass passed, $fail failed, $skip skipped"
    [ $fail = 0 ]
    exit
fi
for t in tests/unit/test_*.c; do
    test -f "$t" && [ $bless = 0 ] && wanted "$t" && unit "$t"
done
if [ -x "$BUILD/dpc" ]; then
    for d in golden error; do
        n=0
        for t in tests/$d/*.ir tests/$d/*.lua; do
            test -f "$t" && wanted "$t" && text "$t"
        done
        spent
        [ $n = 0 ] || printf '%-28s %4d ok %32s s\n' "$d" $n "$s"
    done
    suite system
else
    echo "FAIL $BUILD/dpc does not build"; fail=$((fail + 1))
fi
[ "${BROKEN:-0}" = 0 ] || [ $fail -gt 0 ] || {
    echo 'FAIL something does not build'; fail=1; }
echo "$pass passed, $fail failed, $skip skipped"
[ $fail = 0 ]
