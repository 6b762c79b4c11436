#!/bin/sh
# stage.sh -- pipelines proven: what all roles return, keep and send is what the
# model says, and no two of them wait for each other.
. "$(dirname "$0")/lib.sh"

# proves MODEL RANKS TURNS OPTION...
proves() {
    model=$1 ranks=$2 turns=$3; shift 3
    run "$dpc" verify "$root/$model.lua" --entry train --ranks "$ranks" \
        --micro "$turns" "$@"
    exits 0 "$model, $ranks x $turns $*" \
        "^train: [0-9]+ values equal in the field on $ranks ranks x $turns "
}
pipeline='--partitioner pipeline'

for order in gpipe 1f1b zb-h1 auto; do
    proves models/mlp 3 4 -D batch=8 -D hidden=8 $pipeline -P order=$order
done
proves models/mlp 2 1 -D batch=8 -D hidden=8 $pipeline
proves tests/models/pipe 4 8 -D width=4 $pipeline -P v=2
proves tests/models/pipe 4 3 -D width=4 -D batch=6 $pipeline -P v=2 \
    -P order=zb-h1

# Any number of layers on any number of stages.
proves tests/models/pipe 4 2 -D width=4 -D layers=30 $pipeline
proves tests/models/pipe 4 2 -D width=4 -D layers=24 $pipeline
proves tests/models/pipe 5 2 -D width=4 -D layers=7 $pipeline

# Skips over several stages; attention; several models; frozen parts with what
# is added to them; words that the last layer reads again.
proves models/dalle2/decoder 4 2 -D size=tiny -D batch=4 $pipeline
proves models/dalle2/prior 4 2 -D size=tiny -D batch=4 $pipeline -P v=2
proves models/fuzz/fuzz 3 2 -D seed=9 $pipeline
proves models/fuzz/fuzz 3 2 -D seed=13 $pipeline -P order=zb-h1
proves tests/models/tied 4 4 $pipeline
proves tests/models/tied 2 4 $pipeline -P order=zb-h1

# With other ways to share the ranks of a stage.
proves models/dalle2/prior 4 2 -D size=tiny -D batch=4 $pipeline -P pp=2 \
    -P tp=2 -P least=16
proves tests/models/tied 8 2 $pipeline -P pp=2 -P tp=2 -P least=16
proves tests/models/tied 4 2 $pipeline -P pp=2 -P inner=zero -P gather=use \
    -P least=16
proves models/mlp 4 2 -D batch=8 -D hidden=8 --dtype bf16 $pipeline -P pp=2

# A plan is written, read back, and its order edited.
"$dpc" plan "$root/tests/models/pipe.lua" -D width=4 --ranks 2 --micro 2 \
    $pipeline -P v=2 -o a.lua 2> log
"$dpc" plan "$root/tests/models/pipe.lua" -D width=4 --plan a.lua \
    -o b.lua 2> log
if grep -q 'role = {0, 1, 0, 1}' a.lua && cmp -s a.lua b.lua
then ok "a pipeline is read back as it was written"
else not_ok "a pipeline is read back as it was written" "$(cat log)"; fi
"$dpc" print "$root/tests/models/pipe.lua" -D width=4 --plan a.lua \
    --entry train --after=hop > hop.ir 2> log
list=$(sed -n 's/^order //p' hop.ir | sed 's/ /", "/g')
sed "s/order = .*/order = {\"$list\"},/; s/role = .*/role = {0, 1, 1, 0},/" \
    a.lua > c.lua
proves tests/models/pipe 2 2 -D width=4 --plan c.lua

# Each role's part prints, and reads back.
for role in 0 1; do
    "$dpc" print "$root/models/mlp.lua" -D batch=8 --ranks 2 --micro 2 \
        $pipeline --entry train --role $role --after=cut > cut.ir 2> log
    "$dpc" print "$root/models/mlp.lua" -D batch=8 --ranks 2 --micro 2 \
        $pipeline --entry train --role $role --after=events > want 2>> log
    "$dpc" opt --start-from=regather --ranks 2 --micro 2 cut.ir > have 2>> log
    if grep -q "^role $role" have && cmp -s want have
    then ok "the part of role $role goes on from its text"
    else not_ok "the part of role $role goes on from its text" "$(cat log)"; fi
done
run "$dpc" print "$root/models/mlp.lua" --ranks 2 $pipeline --role 2 --after=cut
exits 2 "a role that is not there" "role 2: the plan has 2 roles"
run "$dpc" eval "$root/models/mlp.lua" --ranks 2 $pipeline --stop-after order
exits 2 "the part of one role has no value of its own" "stop at local"
