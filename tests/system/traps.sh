#!/bin/sh
# traps.sh -- configurations that end in silent wrong maths elsewhere, or in an
# error that nobody can read: here they name the file, the line, the key, its
# value and what is wanted.  Those of tests/error/dalle_*.lua are not repeated.
. "$(dirname "$0")/lib.sh"
prior='"net": {"dim": 16, "depth": 1, "max_text_len": 6, "dim_head": 8, "heads": 2},
"image_embed_dim": 16, "image_size": 8, "timesteps": 30'
unet='"dim": 8, "dim_mults": [1, 2], "image_embed_dim": 12, "cond_dim": 10,
"resnet_groups": 4, "num_resnet_blocks": 1'
qwen='"in_channels": 16, "out_channels": 4, "num_layers": 1,
"attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": 12,
"axes_dims_rope": [8, 4, 4]'

# wrong MODEL BASE KEY VALUE WHAT: the key, in a line of its own before the
# rest, is refused there.
wrong() {
    model=$1 base=$2 key=$3 value=$4 what=$5
    rest=$(printf %s "$base" | tr '\n' ' ' | sed "s/\"$key\": \(\[[^]]*\]\|[^,}]*\)\(, \)\{0,1\}//; s/{ *, /{/; s/, *}/}/; s/, *$//")
    case $model in
    prior) text='{"net": {
"KEY": VALUE, '${rest#'"net": {'} ;;
    *)     text='{
"KEY": VALUE, '$rest ;;
    esac
    printf '%s}\n' "$text" | sed "s/KEY/$key/; s/VALUE/$value/" > c.json
    case $model in
    qwen)      at=qwen_image/transformer ;;
    edit|lora) at=qwen_image/$model ;;
    *)         at=dalle2/$model ;;
    esac
    run "$dpc" check "$root/models/$at.lua" --config c.json -D batch=2
    exits 1 "$model: $key $value" "^c.json:2: error: [A-Za-z_]*: $what"
}
size='a whole number from 1 is wanted'
for value in 768.5 '[]' '{}' '"8"' -1 0 true; do
    wrong prior "$prior" dim "$value" "[a-z_]* is .*; $size"
    wrong unet "$unet" attn_heads "$value" "[a-z_]* is .*; $size"
    wrong qwen "$qwen" num_attention_heads "$value" "[a-z_]* is .*; $size"
done
wrong prior "$prior" attn_dropout 1.5 'attn_dropout is 1.5; a number from 0 to 1'
wrong prior "$prior" ff_mult 0 'ff_mult is 0; a number above 0'
wrong prior "$prior" dim 15 'dim is 15; for sines of the time an even number'
wrong unet "$unet" dim_mults '[]' 'dim_mults is empty; a list'
wrong unet "$unet" dim_mults '[1, 2.5]' 'dim_mults\[1\] is 2.5; a whole number'
wrong unet "$unet" num_resnet_blocks null 'num_resnet_blocks is null; a whole'
wrong unet "$unet" self_attn '[true, "no"]' 'self_attn\[1\] is "no"; true or false'
wrong unet "$unet" cond_dim 12 'image_embed_dim and cond_dim are both 12'
wrong qwen "$qwen" axes_dims_rope '[8, 8]' 'axes_dims_rope has 2 numbers; three'
wrong qwen "$qwen" axes_dims_rope '[9, 3, 4]' 'axes_dims_rope\[0\] is 9; .*even'
wrong qwen "$qwen" num_layers null 'num_layers is null; a whole number'
wrong qwen "$qwen" num_layer 3 '' > /dev/null
exits 1 "qwen: a misspelt key" 'no option "num_layer"; did you mean "num_layers"'

wrong qwen "$qwen" _class_name '"FluxTransformer2DModel"' \
    '_class_name is "FluxTransformer2DModel"; .* QwenImageTransformer2DModel'

for model in edit lora; do
    wrong $model "$qwen" use_additional_t_cond true \
        'use_additional_t_cond is of Layered models, .* transformer.lua'
done
run "$dpc" check "$root/models/qwen_image/transformer.lua" --config c.json
exits 0 "qwen: the transformer of a Layered model is compiled"

# whole MODEL TEXT WHAT: a whole file is refused at its second line.
whole() {
    printf '{\n%s}\n' "$2" > c.json
    run "$dpc" check "$root/models/dalle2/$1.lua" --config c.json
    exits 1 "$1: $2" "^c.json:2: error: $3"
}
whole prior '"prioor": {}' 'no section "prioor"; did you mean "prior"'
whole decoder '"unets": []' 'DecoderConfig: "unets" is empty'
whole decoder '"decoder": {}, "data": {"splits": {}, "webdataset_base_url": 1},
"train": {}, "evaluate": {}, "tracker": {}' 'DecoderDataConfig: webdataset_base_url is 1; a text'
whole prior "\"sample_timesteps\": 1, $prior" '.*sample_timesteps is 1; .*2 is the least'
# Its last step has no signal left: noise cannot be divided out there.
whole decoder '"decoder": {"unets": [{"dim": 8, "dim_mults": [1, 2],
"image_embed_dim": 12, "cond_dim": 10, "resnet_groups": 4}], "timesteps": 30,
"image_size": 16, "beta_schedule": ["jsd"]}' '' > /dev/null
exits 1 "decoder: noise of jsd" "^c.json:4: error: .*sqrt_recip.* is inf"
printf '3\n' > c.json
run "$dpc" check "$root/models/dalle2/prior.lua" --config c.json
exits 1 "a config that is a number" "^c.json:1: error: json: an object"

# ---- options of the command line ----

# An edit model's tokens are patches of latents, its sizes whole patches.
for bad in 'in_channels is 64; tokens of 3 x 3 .* have 144:"patch_size": 3' \
           '1024x1024.*multiples of 24, of patch_size 3; give -D buckets:"patch_size": 3, "in_channels": 144'; do
    printf '{%s}\n' "${bad#*:}" > c.json
    run "$dpc" check "$root/models/qwen_image/edit.lua" --config c.json
    exits 1 "edit: ${bad#*:}" "c.json:1: error: .*${bad%%:*}"
done
printf '{%s}\n' "$qwen" > c.json
for bad in buckets=64x63 buckets=64x64+ buckets=64x64,64x64 rank=0 \
    import=torch sampling=none; do
    run "$dpc" check "$root/models/qwen_image/lora.lua" --config c.json -D $bad
    exits 1 "lora: -D $bad" "error: option: -D $(echo "$bad" | tr + .): "
done

# ---- declared widths and the inputs' own ----

cat > cases.lua <<'EOF'
local q = { in_channels = 16, out_channels = 4, num_layers = 1, attention_head_dim = 16,
  num_attention_heads = 2, joint_attention_dim = 12, axes_dims_rope = { 8, 4, 4 } }
local u = { dim = 8, dim_mults = { 1, 2 }, image_embed_dim = 12, cond_dim = 10,
  resnet_groups = 4, num_resnet_blocks = 1, cond_on_image_embeds = true }
local p = { dim = 16, depth = 1, max_text_len = 6, dim_head = 8, heads = 2 }
local cases = {}
local function case(name, model, part, options, inputs, change, more)
  local all, own = {}, {}
  for k, v in pairs(inputs) do all[k] = v end
  for k, v in pairs(options) do own[k] = v end
  for k, v in pairs(change) do if v == 0 then all[k] = nil else all[k] = v end end
  for k, v in pairs(more or {}) do own[k] = v end
  cases[#cases + 1] = { name = name, model = "models/" .. model, part = part, options = own,
    inputs = all, call = { img_shapes = { { 1, 2, 3 } } }, expect = { out = 0 } }
end
local qi = { hidden_states = { 2, 6, 16 }, encoder_hidden_states = { 2, 5, 12 }, timestep = { 2 } }
local ui = { x = { 2, 3, 8, 8 }, t = { 2, ints = 9 }, image_embed = { 2, 12 } }
local pi = { image_embed = { 2, 16 }, text_embed = { 2, 16 }, t = { 2 }, text_encodings = { 2, 4, 16 } }
local Q, U, P = "qwen_image/transformer.lua", "dalle2/unet.lua", "dalle2/parts.lua"
case("in_channels", Q, "transformer", q, qi, { hidden_states = { 2, 6, 12 } })
case("joint", Q, "transformer", q, qi, { encoder_hidden_states = { 2, 5, 16 } })
case("mask", Q, "transformer", q, qi, { encoder_hidden_states_mask = { 2, 6 } })
case("shapes", Q, "transformer", q, qi, { hidden_states = { 2, 7, 16 } })
case("absent", Q, "transformer", q, qi, { timestep = 0 })
case("channels", U, "unet", u, ui, { x = { 2, 4, 8, 8 } })
case("sides", U, "unet", u, ui, { x = { 2, 3, 8, 7 } })
case("image_embed", U, "unet", u, ui, { image_embed = { 2, 10 } })
case("no_embed", U, "unet", u, ui, { image_embed = 0 })
case("batch", U, "unet", u, ui, { t = { 3, ints = 9 } })
case("width", P, "prior", p, pi, { image_embed = { 2, 12 } })
case("text", P, "prior", p, pi, { text_encodings = { 2, 4, 12 } })
local L = "qwen_image/lora.lua"
case("target", L, "lora", q, qi, {}, { r = 4, target_modules = { "to_q", "to_oot.0" } })
case("rank", L, "lora", q, qi, {}, { r = 0 })
case("alpha", L, "lora", q, qi, {}, { r = 4, lora_alpha = -1 })
case("peft", L, "lora", q, qi, {}, { r = 4, lora_dropout = 0.1 })
return cases
EOF
refused() {
    run "$dpc" eval --cases cases.lua --case "$1"
    exits 6 "a case: $1" "error: .*$2" 'it cannot be run'
    if grep -q "attempt to\|bad argument" log; then
        not_ok "a case: $1" "an error of Lua"
    fi
}
refused in_channels 'hidden_states is \[2,6,12\]; \[2,any,16\] is wanted \(in_channels\)'
refused joint 'encoder_hidden_states is \[2,5,16\]; .*\(joint_attention_dim\)'
refused mask 'encoder_hidden_states_mask is \[2,6\]; \[2,5\]'
refused shapes 'img_shapes are 6 tokens, hidden_states has 7'
refused absent 'timestep is missing'
refused channels 'x is \[2,4,8,8\]; \[2,3,8,8\] is wanted \(channels\)'
refused sides 'x is 8 x 7, .*multiples of 2'
refused image_embed 'image_embed is \[2,10\]; \[2,12\] is wanted \(image_embed_dim\)'
refused no_embed 'there is no image_embed'
refused batch 't is \[3\]; \[2\] is wanted'
refused width 'image_embed is \[2,12\]; \[2,16\] is wanted \(dim\)'
refused text 'text_encodings is \[2,4,12\]; \[2,any,16\]'
refused target 'target "to_oot.0" is the end of no layer.s name; did you mean "to_out.0"'
refused rank 'rank \(r\) is 0; a whole number from 1'
refused alpha 'alpha \(lora_alpha\) is -1; a number above 0'
refused peft 'no option "lora_dropout"'
