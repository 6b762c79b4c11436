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
# REPORTS=DIR: sanitizers write there, a file for a process; each is a failure,
# whatever the test that started the process makes of it.
# SUITE=NAME runs the like of tests/NAME instead of all these.
# Programs, shell tests and folders of texts run side by side, one more than
# JOBS (cores), since ranks wait for each other; each in a process that is this
# file again, --job.  What one says is printed when it ends.
# Time limits are for what hangs, on a machine that ten others use; SLOW=N: N
# times as long.
# A test of which something is missing is skipped, with the reason.  The last
# column is seconds of cores, children included, which load does not change.
set -u
BUILD=${BUILD:-build} bless=0

# Seconds of cores of all children, of what `times` wrote.
spent() {
    awk 'NR == 2 { gsub("s", ""); for (i = 1; i < 3; i++) {
        split($i, t, "m"); n += 60 * t[1] + t[2] } printf "%.1f", n }' "$1"
}
sum() { awk "/^ [0-9]+ $1 TEST/ { n += \$1 } END { print n + 0 }" "$2"; }

# unit SOURCE OUT: sets good, bad, skipped; prints what failed.
unit() {
    prog=$BUILD/tests/unit/$(basename "$1" .c)
    if [ ! -x "$prog" ]; then
        echo "FAIL $name: does not build"; bad=1 good=0 skipped=0; return
    fi
    CMOCKA_MESSAGE_OUTPUT=STDOUT timeout $((900 * ${SLOW:-1})) "$prog" > "$2" 2>&1
    rc=$?
    good=$(grep -c '^\[ *OK *\]' "$2")
    bad=$(sum FAILED "$2") skipped=$(sum SKIPPED "$2")
    [ $rc -ne 0 ] && [ "$bad" = 0 ] && bad=1
    [ $rc -ne 0 ] && { echo "FAIL $name (exit $rc)"; tail -25 "$2"; }
}

# shell SCRIPT OUT: the same.
shell() {
    timeout $((3000 * ${SLOW:-1})) sh "$1" > "$2" 2>&1
    rc=$?
    grep -A9 '^not ok ' "$2" | sed 's/^not ok /FAIL /'
    grep '^skip ' "$2"
    good=$(grep -c '^ok ' "$2") bad=$(grep -c '^not ok ' "$2")
    skipped=$(grep -c '^skip ' "$2")
    [ $rc -ne 0 ] && { echo "FAIL $name (exit $rc)"; bad=$((bad + 1)); }
}

# reports NAME: the processes of NAME report into files of that name.
reports() {
    test -z "${REPORTS:-}" ||
        export ASAN_OPTIONS="$ASAN_OPTIONS:log_path=$REPORTS/$1"
}
reported() {
    for r in "${REPORTS:-/nowhere}"/*; do
        test -f "$r" || continue
        echo "FAIL report $r"; head -30 "$r"; fail=$((fail + 1))
    done
}

# text FILE: a line of dpc beside what it said once.
text() {
    line=$(head -1 "$1" | sed -n 's/^[-#]* *dpc //p')
    case $line in
    '')  return ;;                        # a part of another test
    *' ;') args=${line% ;} ;;             # no file
    *%*) args=$(echo "$line" | sed "s|%|$1|g") ;;
    *)   args="$line $1" ;;
    esac
    { timeout 300 "$BUILD/dpc" $args 2>&1; rc=$?
      [ $rc = 0 ] || echo "exit $rc"; } > "$out.said" </dev/null
    want=${1%.*}.out
    if [ $bless = 1 ]; then
        cp "$out.said" "$want"
    elif diff -u "$want" "$out.said" > "$out" 2>&1; then
        good=$((good + 1))
    else
        echo "FAIL $1: dpc $args"; cat "$out"; bad=$((bad + 1))
    fi
}

# texts DIR: those of it that are wanted.
texts() {
    good=0 bad=0 skipped=0
    for t in "$1"/*.ir "$1"/*.lua; do
        test -f "$t" && wanted "$t" && text "$t"
    done
}

# job FILE|DIR: one test, its line, and its three counts for the sum.
job() {
    name=$(basename "${1%.*}") out=$DPC_TEST_TMP/$(echo "${1%.*}" | tr / -).out
    test -d "$1" || name=$(basename "$(dirname "$1")")/$name
    reports "${out##*/}"
    case $1 in
    *.c) unit "$1" "$out" ;;
    *.sh) shell "$1" "$out" ;;
    *) texts "$1" "$out" ;;
    esac > "$out.job"
    times > "$out.times"
    printf '%-28s %4d ok %3d failed %3d skipped %6s s\n' "$name" "$good" \
        "$bad" "$skipped" "$(spent "$out.times")" >> "$out.job"
    cat "$out.job"
    echo "$good $bad $skipped" > "$out.counts"
}

wanted() { case $1 in *"$filter"*) return 0 ;; esac; return 1; }
test "${1:-}" = --job && { filter=$2; job "$3"; exit 0; }

test "${1:-}" = --bless && { bless=1; shift; }
filter=${1:-} pass=0 fail=0 skip=0
log=$BUILD/test.log
tmp=$(mktemp -d) || exit 5
trap 'rm -rf "$tmp"' EXIT
export DPC_HOME="$PWD" BUILD
export DPC_TEST_TMP="$tmp" TMPDIR="$tmp" NO_COLOR=1 DPC_BUILD="$BUILD"
export DPC_CACHE_DIR="$tmp/cache"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
: > "$log"

# The longest by seconds of cores come first, so that none ends alone.
longest='equality verify test_models forced parity uneven exact cluster memory
    test_cuda plan arena test_sched_host hosts test_nn test_partition
    options compile pipeline test_kernel test_dnn_conv spatial test_sched'

# Those of the files and folders that are wanted, side by side; the longest
# first.
jobs() {
    for t; do
        if [ -d "$t" ]; then
            ls "$t"/*.ir "$t"/*.lua 2> /dev/null | grep -qF -e "$filter" &&
                echo "$t"
        else
            test -f "$t" && [ "${t##*/}" != lib.sh ] && wanted "$t" && echo "$t"
        fi
    done > "$tmp/jobs"
    for long in $longest; do grep "/$long\(\.[a-z]*\)*$" "$tmp/jobs"; done \
        > "$tmp/first"
    { cat "$tmp/first"; grep -vxFf "$tmp/first" "$tmp/jobs"; } |
        xargs -r -P $((${JOBS:-$(nproc)} + 1)) -n 1 \
            sh tests/run.sh --job "$filter"
    cat "$tmp"/*.out >> "$log" 2>/dev/null
    set -- $(cat "$tmp"/*.counts 2>/dev/null | awk '{ a += $1; b += $2; c += $3 }
        END { print a + 0, b + 0, c + 0 }')
    pass=$((pass + $1)) fail=$((fail + $2)) skip=$((skip + $3))
}

if [ -n "${SUITE:-}" ]; then
    jobs tests/"$SUITE"/*.sh
    echo "$pass passed, $fail failed, $skip skipped"
    [ $fail = 0 ]
    exit
fi
if [ -x "$BUILD/dpc" ] && [ $bless = 1 ]; then
    out=$tmp/bless
    for d in golden error; do texts tests/$d; done
elif [ -x "$BUILD/dpc" ]; then
    jobs tests/golden tests/error tests/unit/test_*.c tests/system/*.sh
else
    echo "FAIL $BUILD/dpc does not build"; fail=$((fail + 1))
fi
reported
[ "${BROKEN:-0}" = 0 ] || [ $fail -gt 0 ] || {
    echo 'FAIL something does not build'; fail=1; }
echo "$pass passed, $fail failed, $skip skipped"
[ $fail = 0 ]
