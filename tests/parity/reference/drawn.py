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
    n, ddim = R.choice([1, 2]), coin()
    o = dict(unet=[dict(dalle2.U1, self_cond=coin()) for _ in range(n)],
             image_sizes=[8, 16][:n], timesteps=R.choice([21, 24]),
             **some(ddim_sampling_eta=[.3, 1.], learned_variance=[False],
                    predict_v=[True], predict_x_start=[True],
                    use_dynamic_thres=[True], clip_denoised=[False],
                    beta_schedule=[["linear"] * n],
                    use_noise_for_lowres_cond=[True],
                    lowres_noise_sample_level=[.05],
                    auto_normalize_img=[False]))
    o["use_blur_for_lowres_cond"] = not o.get("use_noise_for_lowres_cond")
    if ddim:
        o["sample_timesteps"] = R.choice([2, 5])
    call = dict(cond_scale=R.choice([1., 2.]))
    i = dict(image_embed=In(2, 12))
    if n == 2 and coin():
        call["stop_at_unet_number"] = 1
    elif n == 2 and coin():
        call["start_at_unet_number"] = 2
        i["image"] = In(2, 3, 8, 8, fill="img", scale=.5, add=.5)
    elif coin():
        size = R.choice([8, 12])
        call["inpaint_resample_times"] = R.choice([1, 3])
        i["inpaint_image"] = In(2, 3, size, size, fill="img", scale=.5,
                                add=.5)
        i["inpaint_mask"] = In(2, size, size, values=[
            float(coin()) for _ in range(2 * size * size)])
    return (o, call, i), {}


def prior_loss():
    o = dict(timesteps=25, **some(
        beta_schedule=SCHEDULES, predict_x_start=[False], predict_v=[True],
        loss_type=["l1", "huber"], training_clamp_l2norm=[True],
        image_embed_scale=[.5, 3.], cond_drop_prob=[0.]))
    o["condition_on_text_encodings"] = coin()
    own = dict(self_cond=True) if coin() else {}
    return (o, o["condition_on_text_encodings"],
            R.choice([0., 1.]) if own else None), own


def prior_sample():
    o = dict(timesteps=25, cond_drop_prob=.1, **some(
        beta_schedule=SCHEDULES, predict_x_start=[False], predict_v=[True],
        sample_timesteps=[2, 7, 25], sampling_clamp_l2norm=[True],
        sampling_final_clamp_l2norm=[True], init_image_embed_l2norm=[True],
        image_embed_scale=[.5, 3.]))
    return (o, some(cond_scale=[0., 2.])), some(
        self_cond=[True], num_image_embeds=[2], num_text_embeds=[3])


def trainer():
    n = R.choice([1, 2])
    number = R.randint(1, n)
    o = dict(unet=[dalle2.U1] * n, image_sizes=[8, 16][:n], timesteps=60,
             blur_prob=1., **dalle2.NO_DROP)
    how = some(lr=[5e-4, [1e-3, 2e-3][:n]], wd=[0., .3, [.1, 0.][:n]],
               eps=[1e-5], warmup_steps=[3, [2, 4][:n]],
               cosine_decay_max_steps=[3, 9], max_grad_norm=[.02],
               group_wd_params=[False], use_ema=[False], ema_beta=[.5, .999],
               ema_update_after_step=[0, 2], ema_update_every=[1, 3],
               ema_inv_gamma=[.5], ema_power=[1.], ema_min_value=[.2])
    t = [[R.randrange(1, 60) for _ in range(2)] for _ in range(5)]
    return (o, how, 8 * n, t, number), {}


def lowres():
    o = some(downsample_first=[False], use_blur=[False], blur_sigma=[.3, 2.],
             blur_kernel_size=[5, 7], input_image_range=[[-.25, .5]])
    o["blur_prob"] = R.choice([0., 1.])
    size = R.choice([9, 12, 16])
    i = dict(image=In(2, 3, size, size, fill="img"))
    if o["blur_prob"]:
        i["blur_coin"] = In(values=[1.])
    return (o, i, dict(downsample_image_size=R.choice([6, 8, 11]),
                       target_image_size=R.choice([12, 17, 24]))), {}


def clip():
    b, causal = R.choice([2, 3]), coin()
    o = dict(dalle2.CLIP, **some(
        dim_text=[8, 20], dim_image=[8, 24], dim_latent=[5],
        text_heads=[1, 3], text_dim_head=[8], visual_heads=[1],
        visual_dim_head=[6], visual_patch_size=[3, 6], channels=[1],
        **{key: [True] for key in """decoupled_contrastive_learning
           extra_latent_projection text_encode_without_mask""".split()},
        multiview_loss_weight=[.25], text_pad_id=[3]))
    if causal:
        o.update(text_causal_mask=True, text_eos_id=7)
    else:
        o.update(some(text_rotary_pos_emb=[True]))
    if coin():
        o.update(use_all_token_embeds=True, text_has_cls_token=not causal,
                 **some(visual_has_cls_token=[False]))
    else:
        o.update(some(sim_reg_loss_weight=[.3]))
    pad = o.get("text_pad_id", 0)

    def words():
        n = R.randint(1, 5)
        row = [R.randrange(8, 50) for _ in range(n)]
        return row + [7] + [pad] * (5 - n)

    picture = [b, o.get("channels", 3), 12, 12]
    i = dict(text=In(b, 6, ints=[words() for _ in range(b)]),
             image=In(*picture, fill="img"))
    if coin():
        i["aug_text"] = In(b, 6, ints=[words() for _ in range(b)])
    if coin() and not o.get("sim_reg_loss_weight"):
        i["aug_image"] = In(*picture, fill="aug")
    return (o, i), {}


def codes(train):
    """VQGanVAE: options, inputs, the codebook."""
    o = dict(layers=R.choice([1, 2]), vq_codebook_size=R.choice([7, 12]),
             vq_kmeans_init=False, channels=R.choice([1, 3]), **some(
                 l2_recon_loss=[True], vq_use_cosine_sim=[False],
                 vq_decay=[.5]))
    if coin():
        o.update(dim=12, vae_type="vit", encdec_patch_size=R.choice([2, 4]),
                 encdec_heads=R.choice([1, 3]), encdec_dim_head=5,
                 **some(encdec_ff_mult=[2]))
        wide = 12
    else:
        o.update(dim=8, encdec_resnet_groups=R.choice([2, 4]),
                 encdec_attn_heads=R.choice([1, 2]), encdec_attn_dim_head=4,
                 **some(encdec_first_conv_kernel_size=[3, 7],
                        encdec_num_resnet_blocks=[2],
                        encdec_use_attn=[False],
                        encdec_layer_mults=[[1, 3][-o["layers"]:]]))
        wide = 8 * o.get("encdec_layer_mults", [2**(o["layers"] - 1)])[-1]
    o["vq_codebook_dim"] = R.choice([5, wide])
    size = R.choice([8, 16])
    book = In(1, o["vq_codebook_size"], o["vq_codebook_dim"], fill="codebook",
              **({"l2norm": True} if o.get("vq_use_cosine_sim", True)
                 else {}))
    leaves = {"vq._codebook.embed": book}
    if train:
        leaves["vq._codebook.embed_avg"] = book
    o["image_size"] = size
    return (o, dict(img=In(2, o["channels"], size, size)), leaves), {}


def vqgan():
    return codes(False)


def vqgan_train():
    return codes(True)


dalle2.cases.text = []
for make, times in (unet, 14), (prior, 8), (decoder_loss, 10), \
        (decoder_sample, 6), (prior_loss, 6), (prior_sample, 6), \
        (trainer, 3), (lowres, 5), (clip, 10), (vqgan, 6), (vqgan_train, 6):
    for n in range(times):
        name = f"{make.__name__} {n}"
        how, call = make()
        try:
            getattr(dalle2, make.__name__)(name, *how, **call)
        except (AssertionError, ValueError, RuntimeError,
                IndexError, NameError) as why:
            print(f"{name} is refused: {why}", file=sys.stderr)
dalle2.cases.show(sys.stdout)
