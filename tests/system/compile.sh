#!/bin/sh
# compile.sh -- compiling twice: the same bytes, and no C compiler the second
# time.  What is asserted is seconds of cores.
. "$(dirname "$0")/lib.sh"
cat > cc <<END
#!/bin/sh
echo "\$*" >> "$work/calls"
exec ${CC:-gcc} "\$@"
END
chmod +x cc
export CC="$work/cc" DPC_CACHE_DIR="$work/cache"
calls() { test -e calls && wc -l < calls || echo 0; }

for m in mlp conv attn; do
    cores_now; t=$cores
    compile $m $m.cold --ranks 2 --micro 2 || not_ok "$m compiles" "exit $?"
    cores_now; cold=$(minus "$cores" "$t") n=$(calls) t=$cores
    compile $m $m.warm --ranks 2 --micro 2
    cores_now; warm=$(minus "$cores" "$t")
    note "$m: cold $cold s, $n calls of cc so far; warm $warm s"
    if [ "$(calls)" = "$n" ]; then ok "$m: a second compile runs no cc"
    else not_ok "$m: a second compile runs no cc" "$(($(calls) - n)) calls"; fi
    if holds "$warm <= 1"; then ok "$m: a second compile takes an instant"
    else not_ok "$m: a second compile takes an instant" "$warm s"; fi
    if cmp -s $m.cold $m.warm; then ok "$m: both binaries are equal"
    else not_ok "$m: both binaries are equal" "they differ"; fi
    for k in a b; do
        "$dpc" compile "$models/$m.lua" --ranks 2 --micro 2 -q \
            --emit graph,plan,schedule,c,cuda --emit-dir $m.$k > log 2>&1 ||
            not_ok "$m: emits text" "exit $?"
    done
    if [ "$(ls $m.a | wc -l)" -ge 4 ] && diff -r $m.a $m.b > log; then
        ok "$m: graph, plan, schedule, C and CUDA are the same bytes twice"
    else not_ok "$m: graph, plan, schedule, C and CUDA are the same bytes twice" "$(ls $m.a | tr '\n' ' ')"; fi
done

# Another plan with the same kernels: its tables are compiled and linked.
n=$(calls)
compile mlp other --ranks 4
n=$(($(calls) - n))
if [ $n = 2 ] && run mpirun -n 4 ./other info && [ $rc = 0 ]; then
    ok "another plan compiles its tables alone"
else not_ok "another plan compiles its tables alone" "$n calls, exit $rc"; fi
# Objects of two caches, which have kernels in common, in one binary: more than
# the seven that a compile makes.
for batch in 32 64; do
    DPC_CACHE_DIR=$work/cache$batch compile mlp alone --ranks 2 -D batch=$batch
done
cp -R --remove-destination cache64/. cache32
DPC_CACHE_DIR=$work/cache32 compile mlp both -D batch=64 --ranks 4; rc=$?
n=$(tail -1 calls | tr ' ' '\n' | grep -c '\.o$')
if [ $rc = 0 ] && [ "$n" -gt 7 ] && run mpirun -n 4 ./both info; then
    ok "objects that share kernels are linked"
else not_ok "objects that share kernels are linked" "exit $rc, $n"; fi

# Another compiler of the same name: its objects are others.
n=$(calls)
printf '# newer\n' >> cc
compile mlp newer --ranks 2 --micro 2
if [ "$(calls)" -gt "$n" ]; then ok "a compiler that changed is asked again"
else not_ok "a compiler that changed is asked again" "no call"; fi

# A cache that was damaged or cannot be written is no reason to fail.
compile mlp again --ranks 2 --micro 2
find cache -type f | while read -r f; do chmod u+w "$f"; echo x > "$f"; done
compile mlp again --ranks 2 --micro 2 2> /dev/null; rc=$?
if [ $rc = 0 ] && ./again info > log 2>&1; then ok "a damaged cache is made anew"
else not_ok "a damaged cache is made anew" "exit $rc"; fi
if DPC_CACHE_DIR=/proc/none "$dpc" compile "$models/mlp.lua" -o nocache > log 2>&1 && ./nocache info > log 2>&1; then
    ok "no place for a cache is no error"
else not_ok "no place for a cache is no error" "exit $?"; fi
"$dpc" compile "$models/mlp.lua" -o one > /dev/null 2>&1 &
"$dpc" compile "$models/mlp.lua" -o two > log 2>&1; rc=$?; wait
if [ $rc = 0 ] && ./one info > log && ./two info > log; then ok "two compiles at once share a cache"
else not_ok "two compiles at once share a cache" "exit $rc"; fi

mkdir -p old && sed 's/dpc_rt layout [0-9]*/dpc_rt layout 0/' \
    "$BUILD/libdpc_rt.a" > old/libdpc_rt.a
cp "$BUILD/libdpc_rt.link" old/
DPC_RUNTIME=$PWD/old/libdpc_rt.a run "$dpc" compile "$models/mlp.lua" -o x
exits 5 "a runtime of another layout" 'it knows another layout of tables'
