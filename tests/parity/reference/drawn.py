#!/usr/bin/env python3
"""drawn.py -- cases of configurations that nobody chose.

    drawn.py SEED > drawn.lua && dpc eval --cases drawn.lua

As dalle2.py, with the constructors' options drawn at random; what an original
refuses is left out.
"""
import random
import sys

import dalle2
from fill import In

R = random.Random(int(sys.argv[1]))
SWITCHES = """lowres_cond self_cond sparse_attn cosine_sim_cross_attn
    cond_on_image_embeds add_image_embeds_to_time init_cross_embed
    cross_embed_downsample scale_skip_connection pixel_shuffle_upsample
    combine_upsample_fmaps resnet_weight_standardization""".split()


def coin():
    return R.random() < .5


def some(**choices):
    """Each key with probability a half, one of its values."""
    return {k: R.choice(v) for k, v in choices.items() if coin()}


def numbers(n, below):
    return In(n, ints=[R.randrange(below) for _ in range(n)])


def unet():
    stages, whole = R.choice([1, 2, 3]), coin()
    mults = [R.choice([1, 2, 3]) for _ in range(stages)]
    o = dict(dim=R.choice([8, 12]), image_embed_dim=12, attn_heads=2,
             cond_dim=R.choice([10, 7]), attn_dim_head=R.choice([4, 6]),
             dim_mults=mults if whole else [1] + mults[1:],
             memory_efficient=whole, resnet_groups=R.choice([2, 4]),
             num_resnet_blocks=[R.choice([1, 2]) for _ in range(stages)],
             channels=R.choice([1, 3]), self_attn=[coin() for _ in mults],
             **some(num_image_tokens=[1, 3], num_time_tokens=[1, 3],
                    init_conv_kernel_size=[3, 5], final_conv_kernel_size=[3],
                    channels_out=[2, 6]),
             **some(**{key: [True, False] for key in SWITCHES}))
    o["lowres_noise_cond"] = o.get("lowres_cond", False) and coin()
    if coin():
        o.update(cond_on_text_encodings=True, text_embed_dim=9,
                 max_text_len=R.choice([3, 6]))
    b, c, side = R.choice([1, 2, 3]), o["channels"], 2**stages
    picture = In(b, c, side, side)
    i = dict(x=picture, image_embed=In(b, 12), t=numbers(b, 100))
    if o.get("cond_on_text_encodings"):
        i["text_encodings"] = In(b, R.choice([2, 4, 7]), 9, zero=[[0, 1]])
    if o.get("lowres_cond"):
        i["lowres_cond_img"] = picture
    if o["lowres_noise_cond"] and coin():
        i["lowres_noise_level"] = numbers(b, 1000)
    if o.get("self_cond") and coin():
        i["self_cond"] = picture
    return (o, i), some(cond_scale=[0., 1.5, 2.])


def prior():
    dim, b = R.choice([8, 16, 18]), R.choice([1, 2])
    flags = "norm_in norm_out final_proj normformer rotary_emb self_cond"
    o = dict(dim=dim, depth=R.choice([1, 2]), max_text_len=R.choice([4, 6]),
             dim_head=R.choice([4, 8, 36]), heads=R.choice([1, 2, 3]),
             **some(**{key: [True, False] for key in flags.split()}),
             **some(num_time_embeds=[2, 3], num_image_embeds=[2, 3],
                    num_text_embeds=[2, 3], ff_mult=[2],
                    num_timesteps=[20]))
    i = dict(image_embed=In(b, dim), text_embed=In(b, dim))
    i["t"] = numbers(b, 20) if "num_timesteps" in o else In(
        b, values=[9 * R.random() for _ in range(b)])
    if coin():
        i["text_encodings"] = In(b, R.choice([2, 4, 5]), dim, zero=[[0, 1]])
    if o.get("self_cond") and coin():
        i["self_cond"] = In(b, dim)
    return (o, i), some(cond_scale=[0., 2.])


SCHEDULES = ["cosine", "linear", "quadratic", "sigmoid"]


def decoder_loss():
    steps, n = R.choice([21, 50]), R.choice([1, 2])
    flags = [[coin() for _ in range(n)] for _ in range(4)]
    o = dict(unet=[dalle2.U1] * n, image_sizes=[8, 16][:n], timesteps=steps,
             blur_prob=R.choice([0., 1.]), **dalle2.NO_DROP,
             **some(beta_schedule=[[R.choice(SCHEDULES) for _ in range(n)]],
                    loss_type=["l1", "l2", "huber"], predict_v=[flags[0]],
                    learned_variance=[flags[1], True, False],
                    predict_x_start=[flags[2]], p2_loss_weight_gamma=[.5],
                    learned_variance_constrain_frac=[True],
                    lowres_downsample_first=[False]))
    number = R.randint(1, n)
    t = [R.randrange(1, steps) for _ in range(2)]
    i = dict(dalle2.pictures(8 * n + R.choice([0, 4])), t=In(2, ints=t),
             noise=In(2, 3, 8 * number, 8 * number))
    return (o, i, number, t), {}


def decoder_sample():
    o = dict(unet=[dict(dalle2.U1, self_cond=coin())], image_sizes=[8],
             timesteps=R.choice([21, 24]),
             **some(sample_timesteps=[2, 5], ddim_sampling_eta=[.3, 1.],
                    learned_variance=[False], predict_v=[True],
                    predict_x_start=[True], use_dynamic_thres=[True],
                    clip_denoised=[False], beta_schedule=[["linear"]]))
    return (o, dict(cond_scale=R.choice([1., 2.]))), {}


dalle2.cases.text = []
for make, times in (unet, 14), (prior, 8), (decoder_loss, 10), \
        (decoder_sample, 6):
    for n in range(times):
        name = f"{make.__name__} {n}"
        how, call = make()
        try:
            getattr(dalle2, make.__name__)(name, *how, **call)
        except (AssertionError, ValueError, RuntimeError) as why:
            print(f"{name} is refused: {why}", file=sys.stderr)
dalle2.cases.show(sys.stdout)
