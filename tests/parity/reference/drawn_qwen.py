#!/usr/bin/env python3
"""drawn_qwen.py -- cases of Qwen-Image's configurations that nobody chose.

    drawn_qwen.py SEED > drawn.lua && dpc eval --cases drawn.lua

As qwen.py, with the constructors' options, sizes of pictures, masks and the
adapters' targets drawn at random.
"""
import random
import sys

import qwen

R = random.Random(int(sys.argv[1]))


def coin():
    return R.random() < .5


def options():
    o = dict(patch_size=R.choice([1, 2]), num_layers=R.choice([1, 2, 3]),
             out_channels=R.choice([3, 4]), joint_attention_dim=12,
             num_attention_heads=R.choice([1, 2, 3]),
             axes_dims_rope=[R.choice([2, 4, 8]) for _ in range(3)])
    o["in_channels"] = o["out_channels"] * o["patch_size"]**2
    o["attention_head_dim"] = sum(o["axes_dims_rope"])
    if coin():
        o["zero_cond_t"] = True
    elif coin():
        o.update(use_layer3d_rope=True, use_additional_t_cond=True)
    return o


def shapes():
    return [[1, R.randint(1, 6), R.randint(1, 6)]
            for _ in range(R.randint(1, 3))]


def how(o):
    b, words = R.choice([1, 2, 3]), R.randint(1, 7)
    more = dict(batch=b, words=words,
                time=[round(R.random(), 3) for _ in range(b)])
    if coin():
        rows = [[1] + [int(coin()) for _ in range(words - 1)]
                for _ in range(b)]
        if not all(all(row) for row in rows):
            more["mask"] = rows
    if "use_additional_t_cond" in o:
        more["addition"] = [int(coin()) for _ in range(b)]
    return more


def transformer(name):
    o = options()
    wrt = [k for k in ("hidden_states", "encoder_hidden_states", "timestep")
           if coin()]
    qwen.transformer(name, o, shapes(), ["txt_norm.weight"], wrt, **how(o))


def lora(name):
    o = options()
    targets = R.sample(qwen.TWELVE, R.randint(1, 12))
    qwen.lora(name, o, shapes(), R.randint(1, 5), R.choice([1, 4, 2.5]),
              targets, [], **how(o))


def vae(name):
    stages, z = R.choice([1, 2, 3]), R.choice([2, 4])
    o = dict(base_dim=R.choice([4, 8]), z_dim=z,
             dim_mult=[R.choice([1, 2]) for _ in range(stages)],
             num_res_blocks=R.choice([1, 2]),
             temperal_downsample=[coin() for _ in range(stages - 1)],
             latents_mean=[R.random() - .5 for _ in range(z)],
             latents_std=[R.random() + .5 for _ in range(z)])
    side = 2**(stages - 1)
    qwen.vae(name, o, [side * R.randint(1, 5) for _ in range(2)])


qwen.cases.text = []
for make, times in (transformer, 10), (lora, 8), (vae, 6):
    for n in range(times):
        make(f"{make.__name__} {n}")
qwen.cases.show(sys.stdout)
