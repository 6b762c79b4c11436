#!/usr/bin/env python3
"""weights.py -- weights of the originals into binaries, and out again.

    DPC=build/dpc weights.py            (packages: as dalle2.py, safetensors)

The state dict of an original module, saved by the package safetensors, is
read by a binary through --init-from; one step at a learning rate of zero is
trained; the checkpoint, read by safetensors, must hold the same names, shapes
and bits.  So must what `dpc weights convert` makes of the run: one file, or
shards and their index; in bf16 and f16 they are what torch rounds to.
"""
import json
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

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


def same(name, there, weights, to=None):
    """Are these the weights, of type `to`?  Prints those that are not."""
    def wanted(n):
        x = weights[n]
        return x if to is None else x.to(to)
    bad = [n for n in sorted(set(weights) | set(there))
           if n not in weights or n not in there
           or there[n].dtype != wanted(n).dtype
           or not torch.equal(wanted(n), there[n])]
    for n in bad[:9]:
        here = tuple(weights[n].shape) if n in weights else None
        print(f"  {n}: original {here}, ours "
              f"{tuple(there[n].shape) if n in there else None}")
    print(f"{'not ok' if bad else 'ok'} {name}: {len(there)} tensors")
    return not bad


def indexed(folder):
    """The tensors of a folder, each from the file that its index says."""
    with open(os.path.join(folder, "model.safetensors.index.json")) as text:
        index = json.load(text)
    out = {}
    for n, file in index["weight_map"].items():
        with safe_open(os.path.join(folder, file), "pt") as shard:
            out[n] = shard.get_tensor(n)
    total = sum(x.numel() * x.element_size() for x in out.values())
    files = set(index["weight_map"].values())
    assert total == index["metadata"]["total_size"] and len(files) > 1
    return out


def converted(name, trained, at, weights):
    """The run as one file, as shards, narrow, and back from the shards."""
    def convert(source, to, *more):
        run(DPC, "weights", "convert", source, at(to), *more)
    convert(trained, "one.safetensors")
    good = same(f"{name}, one file", load_file(at("one.safetensors")), weights)
    convert(trained, "shards", "--shards", "8KiB")
    good &= same(f"{name}, shards", indexed(at("shards")), weights)
    for word, to in ("bf16", torch.bfloat16), ("f16", torch.float16):
        convert(at("shards"), word + ".safetensors", "--dtype", word)
        good &= same(f"{name}, {word}", load_file(at(word + ".safetensors")),
                     weights, to)
    return good


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
        good = same(name, back, weights)
        return good & converted(name, at("run"), at, weights)


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
    dict(image=np.zeros((2, 8, 8, 3), np.uint8), image_embed=floats(2, 12)))
good &= round_trip(
    "CLIP", "models/dalle2/clip.lua", clip, CLIP(**clip),
    dict(image=np.zeros((2, 8, 8, 3), np.uint8),
         text=np.ones((2, 6), np.int32)))
sys.exit(not good)
