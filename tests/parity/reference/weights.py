#!/usr/bin/env python3
"""weights.py -- weights of the originals into binaries, and out again.

    DPC=build/dpc weights.py            (packages: as dalle2.py, safetensors)

The state dict of an original module, saved by the package safetensors, is
read by a binary through --init-from; one step at a learning rate of zero is
trained; the checkpoint, read by safetensors, must hold the same names, shapes
and bits.
"""
import json
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file

warnings.filterwarnings("ignore")
import dalle2_pytorch.dalle2_pytorch as d2  # noqa: E402
from x_clip import CLIP  # noqa: E402

DPC = os.path.abspath(os.environ.get("DPC", "build/dpc"))


def run(*line):
    done = subprocess.run([str(x) for x in line], capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, line))}\n{done.stdout}{done.stderr}")


def kept(module):
    """Parameters; one that several modules share under its first name, as
    safetensors itself saves it."""
    return {n: x.detach().contiguous() for n, x in module.named_parameters()}


def round_trip(name, model, config, module, inputs):
    weights = kept(module)
    with tempfile.TemporaryDirectory() as folder:
        def at(*s):
            return os.path.join(folder, *s)
        save_file(weights, at("w.safetensors"))
        with open(at("config.json"), "w") as out:
            json.dump(config, out)
        run(DPC, "compile", model, "--config", at("config.json"), "-q",
            "-D", "batch=2", "-o", at("bin"))
        given = []
        for key, x in inputs.items():
            np.save(at(key + ".npy"), x)
            given += ["--input", f"{key}={at(key)}.npy"]
        run(at("bin"), "train", "--steps", 1, "--lr", 0, "--out", at("run"),
            "--init-from", at("w.safetensors"), *given)
        back = load_file(at("run", "ckpt", "step-00000001",
                            "model.safetensors"))
    bad = [n for n in sorted(set(weights) | set(back))
           if n not in weights or n not in back
           or not np.array_equal(weights[n].numpy(), back[n])]
    for n in bad[:9]:
        here = tuple(weights[n].shape) if n in weights else None
        print(f"  {n}: original {here}, checkpoint "
              f"{back[n].shape if n in back else None}")
    print(f"{'not ok' if bad else 'ok'} {name}: {len(back)} tensors")
    return not bad


def floats(*shape):
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


net = dict(dim=16, depth=2, num_timesteps=10, max_text_len=6, dim_head=8,
           heads=2, normformer=True, num_text_embeds=2)
unet = dict(dim=8, image_embed_dim=12, cond_dim=10, dim_mults=[1, 2],
            attn_dim_head=4, attn_heads=2, resnet_groups=4,
            num_resnet_blocks=2, self_attn=[True, False])
clip = dict(dim_text=12, dim_image=16, dim_latent=8, num_text_tokens=50,
            text_enc_depth=1, visual_enc_depth=1, text_seq_len=6,
            text_heads=2, text_dim_head=4, visual_heads=2, visual_dim_head=8,
            visual_image_size=8, visual_patch_size=4)

good = round_trip(
    "DiffusionPrior", "models/dalle2/prior.lua",
    {"prior": {"net": net, "image_embed_dim": 16, "image_size": 8,
               "timesteps": 10}},
    d2.DiffusionPrior(d2.DiffusionPriorNetwork(**net), image_embed_dim=16,
                      timesteps=10),
    dict(image_embed=floats(2, 16), text_embed=floats(2, 16),
         text_encodings=floats(2, 6, 16)))
good &= round_trip(
    "Decoder", "models/dalle2/decoder.lua",
    {"decoder": {"unets": [unet], "image_sizes": [8], "timesteps": 20}},
    d2.Decoder((d2.Unet(**dict(unet, dim_mults=(1, 2),
                               self_attn=(True, False))),),
               image_sizes=(8,), timesteps=20),
    dict(image=np.zeros((2, 3, 8, 8), np.uint8), image_embed=floats(2, 12)))
good &= round_trip(
    "CLIP", "models/dalle2/clip.lua", clip, CLIP(**clip),
    dict(image=np.zeros((2, 3, 8, 8), np.uint8),
         text=np.ones((2, 6), np.int32)))
sys.exit(not good)
