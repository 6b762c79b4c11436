#!/bin/sh
# dalle2.sh -- published models from their configurations: they split as any
# other, train, evaluate and sample.
. "$(dirname "$0")/lib.sh"
dalle=$root/models/dalle2

cat > prior.json <<'J'
{ "net": { "dim": 16, "depth": 1, "num_timesteps": 20, "max_text_len": 6,
           "dim_head": 8, "heads": 2, "self_cond": true, "ff_dropout": 0.1 },
  "image_embed_dim": 16, "image_size": 8, "timesteps": 20,
  "sample_timesteps": 5, "cond_drop_prob": 0.1 }
J
cat > cascade.json <<'J'
{ "unets": [
    { "dim": 8, "dim_mults": [1, 2], "image_embed_dim": 12, "cond_dim": 10,
      "attn_dim_head": 4, "attn_heads": 2, "resnet_groups": 4,
      "num_resnet_blocks": 1, "self_cond": true },
    { "dim": 4, "dim_mults": [1, 2], "resnet_groups": 2, "attn_heads": 2,
      "attn_dim_head": 4, "num_resnet_blocks": 1 } ],
  "image_sizes": [8, 16], "timesteps": 30, "sample_timesteps": [5, 5],
  "use_noise_for_lowres_cond": true }
J
cat > vqgan.json <<'J'
{ "dim": 16, "image_size": 16, "layers": 2, "vq_codebook_size": 12,
  "vq_codebook_dim": 6, "encdec_attn_heads": 2, "encdec_attn_dim_head": 4,
  "use_vgg_and_gan": false }
J

cat > latent.json <<'J'
{ "unets": [
    { "dim": 8, "dim_mults": [1, 2], "image_embed_dim": 12, "cond_dim": 10,
      "attn_dim_head": 4, "attn_heads": 2, "resnet_groups": 4,
      "num_resnet_blocks": 1 } ],
  "vae": [ { "dim": 4, "image_size": 16, "layers": 1,
             "encdec_resnet_groups": 2, "use_vgg_and_gan": false } ],
  "clip": { "make": "x-clip", "base_model_kwargs": {
    "dim_text": 16, "dim_image": 16, "dim_latent": 12, "text_enc_depth": 1,
    "visual_enc_depth": 1, "visual_image_size": 16, "visual_patch_size": 8,
    "num_text_tokens": 50, "text_seq_len": 6 } },
  "image_sizes": [16], "timesteps": 30 }
J

# split MODEL CONFIG ENTRY -D..: one rank and two, with two turns, agree.
split() {
    name=$1 json=$2 entry=$3; shift 3
    "$dpc" eval "$dalle/$name.lua" --config $json --entry $entry --field "$@" \
        > one 2> log
    "$dpc" eval "$dalle/$name.lua" --config $json --entry $entry --field "$@" \
        --ranks 2 --micro 2 > two 2>> log
    if [ -s one ] && cmp -s one two; then ok "$name $entry is equal on two ranks"
    else not_ok "$name $entry is equal on two ranks" "$(head -1 two)"; fi
}
split prior prior.json train -D batch=4
split prior prior.json denoise -D batch=4
split decoder cascade.json train -D batch=4 -D unet=1
split decoder cascade.json train -D batch=4 -D unet=2
split decoder cascade.json begin2 -D batch=4 -D unet=0
split vqgan vqgan.json train -D batch=4

# Of a cascade in the host's memory the U-Net at work comes, layer by layer.
away() {
    what=$1; shift
    "$dpc" $what "$dalle/decoder.lua" --config cascade.json -D batch=4 \
        -D unet=0 "$@" 2>> log
}
away eval --entry denoise1 --field > one
away eval --entry denoise1 --field --offload 'unets.*.**' > two
if [ -s one ] && cmp -s one two; then ok "a U-Net that comes is the same"
else not_ok "a U-Net that comes is the same" "$(tail -3 log)"; fi
away "compile -q" --offload 'unets.*.**' --emit schedule --emit-dir out
for k in 1 2; do
    awk -v mine="unets.$((k - 1))." '/^buf unets/ {
        other += index($2, mine) != 1; held += $3 == "leaves"
        came += $2 ~ /[.]in$/ && $3 == "arena" }
        END { exit !(came > 50 && !other && !held) }' \
        "out/decoder.denoise$k.schedule.ir" && ok "U-Net $k comes alone" ||
        not_ok "U-Net $k comes alone" "$(grep -m 3 '^buf unets' \
            "out/decoder.denoise$k.schedule.ir")"
done

# What is read, not trained, has its own names and no gradient: CLIP and VAE.
for entry in train eval begin1; do
    "$dpc" print "$dalle/decoder.lua" --config latent.json -D clip=true \
        --entry $entry --short 2> log
done | sed -n 's/^\([a-z]*\)\..*= param .*frozen.*/\1/p' | sort -u |
    tr '\n' ' ' > frozen
if [ "$(cat frozen)" = "clip vaes " ]; then ok "CLIP and the VAE are frozen"
else not_ok "CLIP and the VAE are frozen" "$(cat frozen)"; fi

"$tool" array image_embed.npy f4 32 16
"$tool" array text_embed.npy f4 32 16
"$tool" array text_encodings.npy f4 32 6 16
"$dpc" compile "$dalle/prior.lua" --config prior.json -D batch=4 --ranks 2 \
    -o prior > log 2>&1 || not_ok "the prior compiles" "exit $?"
data=image_embed.npy,text_embed.npy,text_encodings.npy
ranks 2 prior train --data $data --steps 4 --out run
exits 0 "a prior trains" "step 4/4 .* loss [0-9.]+"
ranks 2 prior eval --data $data --out run
exits 0 "a prior is evaluated by its averages" "loss [0-9.]+"
ranks 2 prior sample --data $data --out run --output image_embed=e.npy
exits 0 "a prior samples embeddings"
# 128 bytes of head, and 4 embeddings of 16 floats.
if [ "$(wc -c < e.npy)" = 384 ]; then ok "an embedding for each caption"
else not_ok "an embedding for each caption" "$(wc -c < e.npy) bytes"; fi
