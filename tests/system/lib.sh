# lib.sh -- what the system tests share; sourced by each of them.
#
# A system test sees what a user sees: dpc, binaries it made, mpirun.  It runs
# in a folder of its own, with a cache that all of them share, and prints
#   ok NAME | not ok NAME: WHY | skip NAME: WHY
# for each claim, and "# ..." for each number measured.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$root/$BUILD ;; esac
dpc=$BUILD/dpc tool=$BUILD/tests/system/tool models=$root/tests/models
export DPC_HOME="$root" NO_COLOR=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none
top=${DPC_TEST_TMP:-$(mktemp -d)}
export DPC_CACHE_DIR="${DPC_CACHE_DIR:-$top/cache}"
work=$top/$(basename "$0" .sh)
mkdir -p "$work" && cd "$work" || exit 5
test -n "${DPC_TEST_TMP:-}" || trap 'rm -rf "$top"' EXIT

ok() { echo "ok $1"; }
not_ok() {
    echo "not ok $1: $2"
    test ! -s log || tail -8 log | sed 's/^/    /'
}
skip() { echo "skip $1: $2"; }
note() { echo "# $*"; }

# compile MODEL BIN [dpc's options]: leaves its talk in log.
compile() {
    lua=$models/$1.lua bin=$2; shift 2
    "$dpc" compile "$lua" -o "$bin" "$@" > log 2>&1
}

# From here on dpc's C compiler is told to be quick, by $1 or -O0: kernels that
# run for milliseconds are compiled for seconds.  How it optimizes them is for
# other tests (equality, exact).  One file for all tests, made once: what the
# cache has is told apart by the compiler's path and age.
quick() {
    name=quick${1:--O0}
    if [ ! -x "$top/$name" ]; then
        printf '#!/bin/sh\nexec %s "$@" %s\n' "${CC:-gcc}" "${1:--O0}" \
            > "$work/$name"
        chmod +x "$work/$name"
        ln "$work/$name" "$top/$name" 2> /dev/null
    fi
    export CC="$top/$name"
}

# run COMMAND...: at most ten minutes, SLOW times; its talk in log, its exit code in rc.
run() {
    timeout -k 5 $((600 * ${SLOW:-1})) "$@" > log 2>&1 < /dev/null
    rc=$?
}

# ranks N BIN ARGS...: the same on N ranks.
ranks() {
    size=$1 bin=$2; shift 2
    case $size in
    1) run "./$bin" "$@" ;;
    *) run mpirun -n "$size" "./$bin" "$@" ;;
    esac
    return $rc
}

# exits CODE NAME PATTERN...: a claim on the last run: its exit code, and that
# each pattern (grep -E) is in what it said.
exits() {
    want=$1 name=$2; shift 2
    if [ "$rc" != "$want" ]; then
        not_ok "$name" "exit $rc, wanted $want"
        return 1
    fi
    for p; do
        grep -Eq -e "$p" log || {
            not_ok "$name" "does not say \"$p\""
            return 1
        }
    done
    ok "$name"
}

# field KEY FILE: values of a key in lines of JSON, one a line.
field() { sed -n "s/.*\"$1\":\\([^,}]*\\).*/\\1/p" "$2"; }

# losses_off RUN RUN FROM TO: largest relative difference of these losses; 9 if
# one is missing, or no number.
losses_off() {
    field loss "$1/metrics.jsonl" | sed -n "$3,$4p" > "$work/losses-a"
    field loss "$2/metrics.jsonl" | sed -n "$3,$4p" > "$work/losses-b"
    paste "$work/losses-a" "$work/losses-b" | awk -v want=$(($4 - $3 + 1)) '
        $1 ~ /^-?[0-9.]/ && $2 ~ /^-?[0-9.]/ {
            d = ($1 - $2) / $1; d = d < 0 ? -d : d
            if (d > most) most = d; n++ }
        END { print n == want ? most + 0 : 9 }'
}

now() { date +%s.%N; }
since() { awk "BEGIN { printf \"%.3f\", $(now) - $1 }"; }
# Seconds of cores of all commands so far, into cores: unlike the clock's, they
# do not grow when others work.
cores_now() {
    times > "$top/times"
    cores=$(awk 'NR == 2 { gsub("s", ""); split($1, u, "m"); split($2, s, "m")
        printf "%.2f", 60 * (u[1] + s[1]) + u[2] + s[2] }' "$top/times")
}
minus() { awk "BEGIN { printf \"%.2f\", $1 - $2 }"; }
holds() { awk "BEGIN { exit !($1) }"; }

# cases FILE OPTIONS...: of parity, in the root: the last line of dpc eval,
# into said.
cases() {
    timeout -k 5 $((800 * ${SLOW:-1})) "$dpc" eval --cases "$@" > "$work/log" 2>&1
    rc=$? said=$(tail -1 "$work/log")
}
# agree FILE OPTIONS...: a claim for each of its cases.
agree() {
    cases "$@"
    name=${1##*/}
    case $said in
    *' passed, '*) ;;
    *) not_ok "$name" "exit $rc, $said"; return ;;
    esac
    n=${said%% *}
    while [ "$n" -gt 0 ]; do
        ok "$name: a case agrees"
        n=$((n - 1))
    done
    while read -r first rest; do
        case $first in
        FAIL) not_ok "$name" "$rest" ;;
        skip) skip "$name" "$rest" ;;
        esac
    done < "$work/log"
}
