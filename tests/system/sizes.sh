#!/bin/sh
# sizes.sh -- dpc check --json on models of published sizes: every parameter
# is there, and the work is what profilers of the originals count.
. "$(dirname "$0")/lib.sh"
dalle=$root/models/dalle2 qwen=$root/models/qwen_image

# counts NAME MODEL PARAMETERS TRAINABLE [CONFIG]
counts() {
    name=$1 parameters=$3 trainable=$4
    set -- "$2" ${5:+--config "$5"}
    if [ ! -f "$1" ]; then skip "$name" "there is no $1"; return; fi
    run "$dpc" check "$@" --json
    if grep -q "\"parameters\": $parameters, \"trainable\": $trainable," log
    then ok "$name: $parameters parameters, $trainable trainable"
    else not_ok "$name: $parameters parameters, $trainable trainable" \
        "exit $rc, $(grep -o '"parameters[^s]*' log)"; fi
}

# forward NAME GMAC SAMPLES: the last model's work, within 2 %.
forward() {
    flops=$(grep -o '"flops_forward": [0-9]*' log | grep -o '[0-9]*$')
    note "$1: ${flops:-0} flops forward"
    if holds "${flops:-0} / ($2 * 2e9 * $3) > 0.98 &&
              ${flops:-0} / ($2 * 2e9 * $3) < 1.02"
    then ok "$1: $2 GMAC a sample"
    else not_ok "$1: $2 GMAC a sample" "${flops:-0} flops of $3"; fi
}

cat > decoder.json <<END
{"decoder": {"unets": [{"dim": 128, "image_embed_dim": 768, "cond_dim": 64,
  "dim_mults": [1, 2, 4, 8], "attn_dim_head": 32, "attn_heads": 16}],
  "image_sizes": [64], "beta_schedule": "cosine"}}
END
cat > small.json <<END
{"decoder": {"unets": [{"dim": 16, "image_embed_dim": 768, "cond_dim": 16,
  "dim_mults": [1, 2, 4, 8], "attn_dim_head": 16, "attn_heads": 4,
  "self_attn": [false, true, true, true]}], "timesteps": 10,
  "image_sizes": [64], "beta_schedule": ["cosine"]}}
END
cat > prior.json <<END
{"prior": {"net": {"dim": 768, "depth": 12, "num_timesteps": 1000,
  "max_text_len": 77, "heads": 12, "normformer": true},
  "image_embed_dim": 768, "image_size": 224}}
END
cat > large.json <<END
{"prior": {"net": {"dim": 768, "depth": 24, "num_timesteps": 1000,
  "max_text_len": 256, "heads": 32, "normformer": true},
  "image_embed_dim": 768, "image_size": 224}}
END
cat > clip.json <<END
{"dim_text": 512, "dim_image": 512, "dim_latent": 512,
 "num_text_tokens": 49408}
END

counts decoder "$dalle/decoder.lua" 186292678 186292678 decoder.json
forward decoder 33.9 64
counts "small decoder" "$dalle/decoder.lua" 4374678 4374678 small.json
counts prior "$dalle/prior.lua" 101756560 101756544 prior.json
forward prior 8.29 64
counts "large prior" "$dalle/prior.lua" 249416720 249416704 large.json
counts clip "$dalle/clip.lua" 78722049 78722049 clip.json
counts transformer "$qwen/transformer.lua" 20430401088 0
counts lora "$qwen/lora.lua" 20666330688 235929600
