#!/bin/sh
# verify.sh -- dpc verify proves shipped models under plans, and says what it
# cannot prove.
. "$(dirname "$0")/lib.sh"

# proves MODEL RANKS TURNS OPTION...: exit 0, and each entry's line says so.
proves() {
    model=$1 ranks=$2 turns=$3; shift 3
    run "$dpc" verify "$root/models/$model.lua" --ranks "$ranks" \
        --micro "$turns" "$@"
    exits 0 "verify $model on $ranks x $turns $*" \
        "^train: [0-9]+ values equal in the field on $ranks ranks? x $turns "
}

proves mlp 4 2
proves mlp 2 1 --partitioner zero --dtype bf16
for model in clip prior decoder; do
    proves dalle2/$model 2 2 -D size=tiny -D batch=8
done

run "$dpc" verify "$root/models/mlp.lua" --entry train --json
exits 0 "verify --json" '"entry": "train", "ranks": 1, "turns": 1, "values"'
run "$dpc" verify "$root/models/dalle2/decoder.lua" -D batch=512
exits 1 "verify refuses what takes too long" "say smaller sizes with -D"
run "$dpc" verify "$root/models/mlp.lua" --entry nowhere
exits 2 "verify names a missing entry" 'no entry "nowhere"'

for plan in zero1 zero2 zero3 hsdp 'zero -P gather=batch'; do
    proves mlp 4 2 -D batch=16 --partitioner $plan -P least=10
done

# Values that a plan names lie as it says: columns kept, then joined; a sum
# that is owed becomes parts.
cat > value.lua <<'END'
return function(g)
    return {
        mesh = { { "dp", 2 }, { "tp", 2 }, { "mb", g.micro, "time" } },
        value = { ["mlp.in"] = { "*", "tp" },
                  ["m*.mid"] = { "*", "", grad = { "*", "tp" } },
                  ["train:mlp.out"] = {} },
        leaf = function(leaf) return leaf.batch and { "dp/mb" } or {} end,
    }
end
END
proves mlp 4 2 -D batch=16 --partitioner ./value.lua
"$dpc" plan "$root/models/mlp.lua" --ranks 4 --partitioner ./value.lua \
    > again.lua 2> log
proves mlp 4 1 -D batch=16 --plan again.lua
"$dpc" print "$root/models/mlp.lua" --ranks 4 --partitioner ./value.lua \
    --entry train --after=local --short > local.ir
if grep -q 'dot .* : f32\[[0-9/a-z]*,128/tp\]' local.ir; then
    ok "a value named in a plan lies as it says"
else not_ok "a value named in a plan lies as it says" "no product over tp"; fi

# Tensor parallelism finds the pairs of Megatron-LM: a transformer block owes
# two sums over tp forward and two backward, and no gather.
proves dalle2/prior 4 2 -D size=tiny -D batch=8 --partitioner megatron -P tp=2
"$dpc" print "$root/models/dalle2/prior.lua" --ranks 2 --partitioner megatron \
    --entry train --after=local --short > local.ir
count() { grep -c "= $1 .*axes=tp" local.ir; }
if [ "$(count all_gather)" = 0 ] && [ "$(count all_to_all)" = 0 ] &&
    [ "$(count all_reduce)" -ge 12 ] && [ "$(count all_reduce)" -le 24 ]; then
    ok "megatron: only sums cross tp"
else
    not_ok "megatron: only sums cross tp" "$(count all_reduce) sums"
fi

# collectives AXIS PARTITIONER...: how many of each the prior has.
collectives() {
    axis=$1; shift
    "$dpc" print "$root/models/dalle2/prior.lua" -D size=tiny -D batch=8 \
        --ranks 2 --partitioner "$@" --entry train --after=local --short \
        > local.ir
    for c in all_to_all reduce_scatter all_gather; do
        echo "$c $(grep -c "= $c .*axes=$axis .*seg=[fb]" local.ir)"
    done | tr '\n' ' '
}
# One trained block, one frozen: exchanges of q, k, v and back; sums of pairs.
for plan in 'megatron -P tp=2 -P sp=true -P least=1' \
    'megatron -P tp=2 -P zero=3 -P least=16' 'ulysses -P sp=2' \
    'ring -P sp=2 -P whole=true'; do
    proves dalle2/prior 4 2 -D size=tiny -D batch=8 --partitioner $plan
done
proves qwen_image/fashion_base 2 1 -D batch=2 --entry train \
    --partitioner ulysses
# Frozen weights lie in parts, too, and are gathered where adapters are trained.
proves qwen_image/fashion_lora 2 2 -D batch=2 --entry train \
    --partitioner zero3
run "$dpc" verify "$root/tests/models/attn.lua" --entry train --ranks 2 \
    --micro 2 -D scores=1 --partitioner ring -P sp=2
exits 0 "ring: a turn of its own for each rank's keys" \
    "^train: [0-9]+ values equal in the field on 2 ranks x 4 turns"
case $(collectives sp ulysses) in
"all_to_all 12 reduce_scatter 0 "*) ok "ulysses: four exchanges an attention" ;;
*) not_ok "ulysses: four exchanges an attention" "$(collectives sp ulysses)" ;;
esac
case $(collectives sp ring) in
"all_to_all 0 reduce_scatter 2 all_gather 7 ") ok "ring: keys and values" ;;
*) not_ok "ring: keys and values" "$(collectives sp ring)" ;;
esac
run "$dpc" verify "$root/models/mlp.lua" --ranks 4 --partitioner megatron \
    -P tp=3
exits 1 "megatron names a tp that does not divide" "tp is 3, .* 4 ranks"
run "$dpc" verify "$root/models/mlp.lua" --ranks 4 -P tq=3
exits 1 "an option no partitioner has" 'the partitioner has no option "tq"'

# A pair whose process is killed is told with its family and plan, once it has
# them: killed later and later until it does.
for wait in 0.05 0.1 0.2 0.4 0.8 1.6 3.2; do
    "$dpc" verify --fuzz 1 --seed 70001 > log 2>&1 &
    until child=$(pgrep -P $!) || ! kill -0 $! 2> /dev/null; do :; done
    sleep $wait
    kill -SEGV $child 2> /dev/null
    wait $!; rc=$?
    grep -q 'mesh = ' log && break
done
exits 6 "a pair that crashes is told" \
    '^seed 70001: unet, .* CRASHED the compiler stopped' '^    mesh = '

# Drawn models under drawn plans; two of the hundred carry a planted fault.
run "$dpc" verify --fuzz 100 --seed 7 --json
exits 0 "a hundred drawn pairs are proven" '"mismatches": 0, "crashes": 0' \
    '"planted": 2, "found": 2'
note "$(grep -o '"proven": [0-9]*\|"seconds": [0-9.]*' log | tr '\n' ' ')"
