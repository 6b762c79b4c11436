#!/bin/sh
# build.sh -- build, test, measure and install dpc.
#
#   ./build.sh [build]         dpc and libdpc_rt.a into build/ (incremental)
#   ./build.sh test [FILTER]   unit, golden and error tests
#   ./build.sh asan [FILTER]   the same under ASan, UBSan and LSan, emitted
#                              code too, in build-asan/
#   ./build.sh parity [--dtype bf16] [FILE]
#                              models against numbers of the originals
#   ./build.sh plans [N]       models trained under many plans, or N: one loss
#   ./build.sh auto            the partitioner auto against the shipped ones
#   ./build.sh verify [N [M]]  N drawn (model, plan) pairs proven, 400; and
#                              the checker against M mutants a class, 200
#   ./build.sh tsan [NAME]     training steps under ThreadSanitizer
#   ./build.sh demo [OPTIONS]  train and measure the small demo, two ranks
#   ./build.sh bench [FILTER]  programs of tests/bench
#   ./build.sh layers          who includes whom; no axis names in the core
#   ./build.sh size            lines by directory, long files and functions
#   ./build.sh install PREFIX  what a user needs, below PREFIX
#   ./build.sh deps            install what is missing (Debian, Ubuntu)
#
# Environment: CC (gcc), BUILD (build), JOBS (cores), CFLAGS (appended).
set -u
cd "$(dirname "$0")" || exit 5
CC=${CC:-gcc} BUILD=${BUILD:-build} JOBS=${JOBS:-$(nproc)}
# What a debugger would know of variables in -O2 is a sixth of the build.
FLAGS="-std=gnu11 -O2 -g -fno-var-tracking -Wall -Wextra -Wshadow -Werror"
FLAGS="$FLAGS -I. ${CFLAGS:-}"

flags() { pkg-config "$@" 2>/dev/null; }
# Asked for once what they name is there.
libraries() {
    MPI_C=$(flags --cflags ompi-c || mpicc --showme:compile 2>/dev/null)
    MPI_L=$(flags --libs ompi-c || mpicc --showme:link 2>/dev/null)
    LUA_C=$(flags --cflags lua5.4) LUA_L=$(flags --libs lua5.4)
    IMG="libpng libturbojpeg libwebp jansson libpcre2-8 libutf8proc"
    IMG_C=$(flags --cflags $IMG) IMG_L=$(flags --libs $IMG)
    RTLIBS="$MPI_L $IMG_L -ldnnl -lgomp -ldl -lz -lm -lpthread"
    LIBS="$LUA_L $RTLIBS"
}

# One Makefile for every goal.  Archives take the objects that exist, so a
# test still links when a file that it does not need is broken.
make_run() {
    BUILD=$BUILD CC=$CC FLAGS=$FLAGS LIBS=$LIBS RTLIBS=$RTLIBS \
    FILTER=${FILTER:-} \
    EXTRA="$MPI_C $LUA_C $IMG_C" make --no-print-directory -f - "$@" <<'EOF'
floors := ir passes codegen compiler runtime
objects = $(patsubst %.c,$(BUILD)/%.o,$(wildcard $(1)/*.c))
all := $(foreach f,$(floors),$(call objects,$(f)))
chosen = $(foreach f,$(1),$(if $(findstring $(or $(FILTER),$(f)),$(f)),$(f)))
tests := $(patsubst %.c,$(BUILD)/%,tests/system/tool.c \
    $(call chosen,$(wildcard tests/unit/test_*.c)))
benches := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/bench/*.c))
main := $(BUILD)/compiler/main.o
core := $(filter-out $(main) $(call objects,runtime),$(all))

# Commands and what Lua calls wait for passes and files: there -O1 is enough,
# and takes cc two thirds of the time.
level := -O2
$(BUILD)/compiler/%.o: level := -O1

.DELETE_ON_ERROR:
.PHONY: objects link tests benches
objects: $(all)
link: $(BUILD)/dpc
tests: $(tests)
benches: $(benches)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  cc   $<"
	@$(CC) $(FLAGS:-O2=$(level)) $(EXTRA) -MMD -MP -c -o $@ $<

$(BUILD)/libdpc.a: $(wildcard $(core))
	@rm -f $@; ar rcs $@ $^
$(BUILD)/libdpc_rt.a: $(wildcard $(call objects,runtime))
	@rm -f $@; ar rcs $@ $^
	@echo "$(RTLIBS)" > $(BUILD)/libdpc_rt.link

$(BUILD)/dpc: $(main) $(wildcard $(core)) $(BUILD)/libdpc_rt.a
	@echo "  link $@"
	@$(CC) $(FLAGS) -o $@ $^ -Wl,--as-needed $(LIBS)

$(BUILD)/tests/%: tests/%.c $(BUILD)/libdpc.a $(BUILD)/libdpc_rt.a
	@mkdir -p $(@D)
	@echo "  test $<"
	@$(CC) $(FLAGS) $(EXTRA) -MMD -MP -MF $@.d -o $@ $< \
	    $(BUILD)/libdpc.a $(BUILD)/libdpc_rt.a \
	    -Wl,--as-needed -lcmocka $(LIBS)

-include $(all:.o=.d) $(addsuffix .d,$(tests) $(benches))
EOF
}

commands() {
    list=$(ls ir/*.c passes/*.c codegen/*.c compiler/*.c runtime/*.c \
              tests/unit/*.c tests/bench/*.c 2>/dev/null)
    { sep='['
      for f in $list; do
        printf '%s\n{"directory":"%s","file":"%s","command":"%s %s -c %s"}' \
            "$sep" "$PWD" "$f" "$CC" \
            "$(echo "$FLAGS $MPI_C $LUA_C $IMG_C" | sed 's/"/\\"/g')" "$f"
        sep=,
      done
      printf '\n]\n'; } > compile_commands.json
}

need() {
    command -v "$1" >/dev/null && return
    echo "build.sh: no \"$1\": run ./build.sh deps" >&2
    exit 5
}

build() {
    need "$CC" && need make && need mpicc && need pkg-config
    mkdir -p "$BUILD" && commands
    make_run -j"$JOBS" objects && make_run -j"$JOBS" link
}

# Objects and test programs that do not build are failures, the rest runs.
run_tests() {
    need "$CC" && need make && need mpicc && need pkg-config
    mkdir -p "$BUILD" && commands
    broken=0 FILTER=${1:-}
    make_run -k -j"$JOBS" objects || broken=1
    make_run -k -j"$JOBS" link tests || broken=1
    BUILD=$BUILD BROKEN=$broken CC=${TEST_CC:-$CC} sh tests/run.sh "$@"
}

# Emitted code is instrumented, too: dpc's C compiler adds the flags.
asan() {
    BUILD=${BUILD_ASAN:-build-asan}
    san="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
    FLAGS="$FLAGS -O1 $san -fno-omit-frame-pointer"
    LIBS="$LIBS $san" RTLIBS="$RTLIBS $san"
    TEST_CC=$PWD/$BUILD/cc reports=$PWD/$BUILD/reports
    rm -rf "$reports" && mkdir -p "$reports"
    printf '#!/bin/sh\nexec %s "$@" -O1 %s\n' "$CC" "$san" > "$TEST_CC"
    chmod +x "$TEST_CC"
    export SLOW=6 REPORTS=$reports UBSAN_OPTIONS=print_stacktrace=1
    # Whole stacks: what MPI unloads at its end has no names in a report.
    export ASAN_OPTIONS=detect_leaks=1:fast_unwind_on_malloc=0
    export LSAN_OPTIONS=suppressions=$PWD/tests/leaks.supp:print_suppressions=0
    run_tests "$@"
}

# Case files, one or all of tests/parity, JOBS at a time, the longest first; one
# closing line.
parity() {
    dtype=f32
    case ${1:-} in --dtype) dtype=${2:?--dtype: bf16 or f32}; shift 2 ;; esac
    build >&2 || { echo '0 passed, 1 failed, 0 skipped'; return 1; }
    pass=0 fail=0 skip=0 logs=$BUILD/parity
    rm -rf "$logs" && mkdir -p "$logs"
    ls -S ${1:-tests/parity/*.lua} | xargs -P "$JOBS" -I FILE sh -c '
        "$0" eval --host --dtype "$3" --cases "$1" \
            > "$2/$(basename "$1").log" 2>&1
        true' "$BUILD/dpc" FILE "$logs" "$dtype"
    for log in "$logs"/*; do
        last=$(tail -1 "$log" 2>/dev/null)
        case $last in
        *' passed, '*' failed, '*' skipped')
            sed '$d' "$log"
            set -- $last
            pass=$((pass + $1)) fail=$((fail + $3)) skip=$((skip + $5)) ;;
        *)  cat "$log"; echo "FAIL $log"; fail=$((fail + 1)) ;;
        esac
    done
    echo "$pass passed, $fail failed, $skip skipped"
    test $fail = 0
}

plans() {
    build >&2 && FILTER=none make_run -j"$JOBS" tests >&2 ||
        { echo '0 passed, 1 failed, 0 skipped'; return 1; }
    DPC_PLANS=${1:-} SUITE=plans BUILD=$BUILD sh tests/run.sh
}

# Drawn pairs, then mutants; $2 of each class, and as many runs of each.
verify() {
    build >&2 && FILTER=test_mutants make_run -j"$JOBS" tests >&2 ||
        { echo '0 passed, 1 failed, 0 skipped'; return 1; }
    pass=0 fail=0
    DPC_HOME=$PWD "$BUILD/dpc" verify --fuzz "${1:-400}" --seed 1 &&
        pass=1 || { echo 'FAIL verify --fuzz'; fail=1; }
    DPC_MUTANTS=${2:-200} DPC_RUNS=${2:-200} DPC_HOME=$PWD \
        "$BUILD/tests/unit/test_mutants" 2>&1 | tee "$BUILD/verify.log" |
        grep -a '^missed\|schedules\|^class\|%$\|rror'
    if grep -aq '^\[ *PASSED *\] 1 test' "$BUILD/verify.log"; then
        pass=$((pass + 1))
    else
        echo 'FAIL test_mutants'; fail=$((fail + 1))
    fi
    echo "$pass passed, $fail failed, 0 skipped"
    test $fail = 0
}

# No OpenMP and no oneDNN: what is not instrumented, the sanitizer misjudges.
tsan() {
    BUILD=${BUILD_TSAN:-build-tsan} out=$BUILD/tsan.log
    FLAGS="$FLAGS -O1 -fsanitize=thread"
    mkdir -p "$BUILD" && make_run -j"$JOBS" objects >&2 &&
        make_run "$BUILD/libdpc.a" "$BUILD/libdpc_rt.a" >&2 &&
        $CC $FLAGS $MPI_C $LUA_C $IMG_C -rdynamic -o "$BUILD/tsan" \
            tests/tsan/*.c "$BUILD/libdpc.a" "$BUILD/libdpc_rt.a" \
            -Wl,--as-needed $LIBS ||
        { echo '0 passed, 1 failed, 0 skipped'; return 1; }
    DPC_HOME=$PWD TSAN_OPTIONS="halt_on_error=1 exitcode=66" \
        "$BUILD/tsan" "$@" > "$out" 2>&1
    rc=$?
    cat "$out"
    pass=$(grep -c '^ok ' "$out") fail=$(grep -c '^not ok ' "$out")
    [ $rc = 0 ] || fail=$((fail + 1))
    echo "$pass passed, $fail failed, 0 skipped"
    test $fail = 0
}

bench() {
    build && make_run -k -j"$JOBS" benches || return 1
    for b in "$BUILD"/tests/bench/*; do
        case $b in *.d|*.o) continue ;; *"${1:-}"*) ;; *) continue ;; esac
        echo "== ${b##*/}"
        "$b" || return 1
    done
}

layers() {
    bad=0
    while read -r dir may; do
        grep -Hn '#include "' "$dir"/*.[ch] "$dir"/*.def 2>/dev/null |
            grep -Ev "\"($may)" && {
            echo "layers: $dir/ may include only $may"; bad=1; }
    done <<EOF
ir        ir/
passes    ir/|passes/
codegen   ir/|codegen/|runtime/dpc_rt.h
runtime   runtime/
compiler  ir/|passes/|codegen/|compiler/|runtime/(dpc_rt|data|info|source|token).h
EOF
    grep -Hn '#include <lua\|#include <lauxlib' ir/*.[ch] passes/*.[ch] \
        codegen/*.[ch] runtime/*.[ch] $(ls compiler/*.[ch] |
        grep -v '/lua_') 2>/dev/null &&
        { echo 'layers: only compiler/lua_*.c may include Lua'; bad=1; }
    grep -EHn '"(dp|tp|mb|pp|cp|sp|ep)"' ir/*.c passes/*.c codegen/*.c \
        runtime/*.c 2>/dev/null &&
        { echo 'layers: no mesh axis has a name in the core'; bad=1; }
    test $bad = 0 && echo 'layers: ok'
    return $bad
}

size() {
    for d in ir passes codegen runtime compiler models tests; do
        printf '%-10s %6d lines\n' $d "$(find $d -name '*.[ch]' -o -name \
            '*.def' -o -name '*.lua' -o -name '*.sh' -path "$d/*" |
            grep "^$d/" | xargs cat 2>/dev/null | wc -l)"
    done
    wc -l ./*/*.[ch] tests/*/*.c | awk '$2 != "total" && $1 > 600 {
        print "long file: " $2 " " $1; bad = 1 } END { exit bad }'
    awk 'FNR == 1 { at = 0 }
         /^{/ { at = FNR }
         /^}/ && at { n = FNR - at + 1; at = 0
             if (n > 60) print "long function: " FILENAME ":" FNR " " n
             sum[++k] = n }
         END { print k " functions" }' ./*/*.c
}

install_to() {
    p=${1:?install: give a PREFIX}
    build || return 1
    install -Dm755 "$BUILD/dpc" "$p/bin/dpc"
    install -Dm644 "$BUILD/libdpc_rt.a" "$p/lib/dpc/libdpc_rt.a"
    install -Dm644 "$BUILD/libdpc_rt.link" "$p/lib/dpc/libdpc_rt.link"
    for f in runtime/dpc_rt.h models/*.lua models/*/*.lua \
             passes/partitioners/*.lua passes/partitioners/*/*.lua; do
        test -f "$f" && install -Dm644 "$f" "$p/share/dpc/$f"
    done
    "$BUILD/dpc" help --man > "$BUILD/dpc.1" &&
        install -Dm644 "$BUILD/dpc.1" "$p/share/man/man1/dpc.1"
    for s in bash zsh fish; do
        "$BUILD/dpc" completion $s > "$BUILD/dpc.$s" || return 1
    done
    install -Dm644 "$BUILD/dpc.bash" "$p/share/bash-completion/completions/dpc"
    install -Dm644 "$BUILD/dpc.zsh" "$p/share/zsh/site-functions/_dpc"
    install -Dm644 "$BUILD/dpc.fish" \
        "$p/share/fish/vendor_completions.d/dpc.fish"
}

# file that shows it is there, package, why
deps() {
    miss= why=
    while read -r probe pkg what; do
        case $probe in
        /*) test -n "$(ls $probe 2>/dev/null)" ;;
        *)  command -v "$probe" >/dev/null ;;
        esac || { miss="$miss $pkg"; why="$why
  $pkg: $what"; }
    done <<EOF
gcc gcc the compiler, also of what dpc emits
tcc tcc compiles tables, and what only the hunt of NaNs calls, in no time
make make the build
pkg-config pkg-config flags of libraries
mpicc libopenmpi-dev ranks talk through MPI
mpirun openmpi-bin starts ranks
pgrep procps tests find the ranks that they kill
/usr/include/lua5.4/lua.h liblua5.4-dev models are written in Lua
/usr/include/cmocka.h libcmocka-dev unit tests
/usr/include/dnnl.h libdnnl-dev matrix products and convolutions
/usr/include/png.h libpng-dev reads and writes pictures
/usr/include/turbojpeg.h libturbojpeg0-dev reads pictures
/usr/include/webp/decode.h libwebp-dev reads pictures
/usr/include/pcre2.h libpcre2-dev cuts text into words for tokenizers
/usr/include/utf8proc.h libutf8proc-dev normal form and lower case of text
/usr/include/jansson.h libjansson-dev reads JSON
/usr/include/xxhash.h libxxhash-dev names kernels by their text
/usr/include/zlib.h zlib1g-dev reads .gz data
/usr/share/datasets/fashion-mnist dataset-fashion-mnist 70,000 photographs, of demo and tests
EOF
    test -z "$miss" && return 0
    echo "deps: missing:$why"
    cmd="apt-get install -y --no-install-recommends$miss"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "deps: $cmd"
        DEBIAN_FRONTEND=noninteractive $cmd || {
            apt-get update && DEBIAN_FRONTEND=noninteractive $cmd; } || return 5
    else
        echo "deps: run: sudo $cmd"
        return 5
    fi
}

case ${1:-build} in
demo|test|asan|parity|plans|verify|tsan) deps || exit 5 ;;
esac
libraries

case ${1:-build} in
build)   build ;;
test)    shift; run_tests "$@" ;;
asan)    shift; asan "$@" ;;
demo)    shift; DPC_BEGIN=$(date +%s); export DPC_BEGIN
         build && "$BUILD/dpc" demo "$@" ;;
parity)  shift; parity "$@" ;;
plans)   shift; plans "$@" ;;
auto)    build >&2 && BUILD=$BUILD sh tests/bench/auto_pairs.sh ;;
verify)  shift; verify "$@" ;;
tsan)    shift; tsan "$@" ;;
bench)   shift; bench "$@" ;;
layers)  layers ;;
size)    size ;;
install) shift; install_to "$@" ;;
deps)    deps && echo 'deps: all there' ;;
clean)   rm -rf "$BUILD" build-asan build-tsan compile_commands.json ;;
*)       sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
