#!/usr/bin/env python3
"""dalle2.py -- makes cases of docs/parity.md from DALLE2-pytorch.

    pip install --no-deps dalle2-pytorch==1.15.6 x-clip==0.14.4 \\
        coca-pytorch==0.1.0 rotary-embedding-torch==0.3.2 \\
        vector-quantize-pytorch==1.9.18 ema-pytorch==0.8.3 einops==0.7.0 \\
        kornia==0.7.0 resize-right==0.0.2 pytorch-warmup==0.1.1 \\
        clip-anytorch==2.6.0 torch==2.15.0 torchvision  (and what they import)
    dalle2.py > tests/parity/made_dalle2.lua

Every number comes out of the unmodified modules, in doubles, with the
branches that they take for float32 (fill.doubles).  What they draw by
themselves (times, coins) is replaced by numbers that the case gives.
"""
import contextlib
import sys
import types
import warnings
from unittest import mock

import torch

from fill import (Cases, In, bits, count, digest, doubles, draws, f, fill,
                  gradients, lua, mse, norm, tensors, trained)

warnings.filterwarnings("ignore")
import dalle2_pytorch.dalle2_pytorch as d2  # noqa: E402
from dalle2_pytorch import vqgan_vae as vq  # noqa: E402

HEAD = """\
-- made_dalle2.lua -- more configurations of DALLE2-pytorch 1.15.6, made by
-- tests/parity/reference/dalle2.py from its unmodified modules."""

cases = Cases(HEAD, "models/dalle2/parts.lua")
torch.set_num_threads(1)
d2.tqdm = lambda x, **_: x


def plain(o):
    """Lists become tuples, as the originals want them."""
    if isinstance(o, list):
        return tuple(plain(x) for x in o)
    return {k: plain(v) for k, v in o.items()} if isinstance(o, dict) else o


@contextlib.contextmanager
def times_are(*lists):
    """torch.randint answers these, one after the other."""
    left = [torch.tensor(x) for x in lists]
    with mock.patch.object(torch, "randint", lambda *_, **__: left.pop(0)):
        yield


# ---- prior ----

def prior_call(net, i, t, **more):
    x = tensors(i)
    return net.forward_with_cond_scale(
        x["image_embed"], t, text_embed=x["text_embed"],
        text_encodings=x.get("text_encodings"),
        self_cond=x.get("self_cond"), **more)


def prior(name, options, inputs, grads=(), **call):
    net = fill(d2.DiffusionPriorNetwork(**plain(options)))
    with doubles():
        t = inputs["t"].tensor("t")
        if "values" in inputs["t"].how:
            t = t.double()
        out = prior_call(net, inputs, t, **call)
        expect = {"params": count(net), **trained(out, net, grads)}
    cases.add(name, "prior", expect, options=options, inputs=inputs, call=call)


prior("odd sizes, pre-norm, three heads",
      dict(dim=20, depth=3, num_timesteps=13, max_text_len=7, dim_head=12,
           heads=3, ff_mult=2, norm_in=True, num_text_embeds=3),
      dict(image_embed=In(3, 20), text_embed=In(3, 20),
           text_encodings=In(3, 5, 20, zero=[[0, 1], [0, 4], [2]]),
           t=In(3, ints=[0, 12, 5])),
      ["causal_transformer.layers.1.1.5.weight", "null_text_encodings"])
prior("wide heads: rotary is partial; continuous time; self-conditioning",
      dict(dim=24, depth=1, max_text_len=5, dim_head=40, heads=1,
           num_image_embeds=3, self_cond=True, normformer=True),
      dict(image_embed=In(2, 24), text_embed=In(2, 24),
           self_cond=In(2, 24), text_encodings=In(2, 5, 24),
           t=In(2, values=[0.25, 6.5])),
      ["to_time_embeds.0.1.net.0.0.weight", "to_image_embeds.0.weight"])
prior("guided at scale 0.5, no text encodings",
      dict(dim=16, depth=2, num_timesteps=10, max_text_len=6, dim_head=8,
           heads=2, rotary_emb=False, norm_out=False),
      dict(image_embed=In(2, 16), text_embed=In(2, 16), t=In(2, ints=[1, 9])),
      cond_scale=0.5)


SMALL = dict(dim=16, depth=2, num_timesteps=25, max_text_len=6, dim_head=8,
             heads=2)
TEXT = In(2, 4, 16, zero=[[0, 3], [1, 2], [1, 3]])


def diffusion_prior(options, **net):
    net = fill(d2.DiffusionPriorNetwork(**plain({**SMALL, **net})))
    p = d2.DiffusionPrior(net, image_embed_dim=16, **options).double()
    return net, p.eval()


@contextlib.contextmanager
def coin_is(inputs, name):
    """random.random answers below a half where the case's coin is 1."""
    coin = inputs[name].tensor(name).item() if name in inputs else 0
    with mock.patch.object(d2.random, "random", lambda: .75 - coin / 2):
        yield


def prior_loss(name, options, text=True, coin=None, **own):
    net, p = diffusion_prior(options, **own)
    inputs = dict(image_embed=In(2, 16), text_embed=In(2, 16),
                  t=In(2, ints=[3, 21]), noise=In(2, 16))
    if text:
        inputs["text_encodings"] = TEXT
    if coin is not None:
        inputs["self_cond_coin"] = In(values=[coin])
    x = tensors(inputs)
    with doubles(), times_are([3, 21]), coin_is(
            inputs, "self_cond_coin"), mock.patch.object(
            torch, "randn_like", lambda _: x["noise"]):
        loss = p(text_embed=x["text_embed"], image_embed=x["image_embed"],
                 text_encodings=x.get("text_encodings"))
        expect = {"loss": loss.item(), **gradients(loss, net)}
    cases.add(name, "diffusion_prior", expect, inputs=inputs,
              options={**options, "net": {**SMALL, **own},
                       "image_embed_dim": 16})


prior_loss("linear, noise, Huber, own scale",
           dict(timesteps=25, beta_schedule="linear", predict_x_start=False,
                loss_type="huber", image_embed_scale=2.5,
                condition_on_text_encodings=False), text=False)
prior_loss("quadratic, v, l1, clamped",
           dict(timesteps=25, beta_schedule="quadratic", predict_v=True,
                loss_type="l1", training_clamp_l2norm=True))


prior_loss("the coin of self-conditioning says yes", dict(timesteps=25),
           coin=1., self_cond=True)
prior_loss("the coin of self-conditioning says no", dict(timesteps=25),
           coin=0., self_cond=True)


def prior_sample(name, options, call, **own):
    net, p = diffusion_prior(options, **own)
    inputs = dict(text_embed=In(2, 16), text_encodings=TEXT)
    x = tensors(inputs)
    with doubles(), draws("randn"), torch.no_grad():
        out = p.p_sample_loop((2, 16), text_cond=x,
                              timesteps=options.get("sample_timesteps"),
                              **call)
    cases.add(name, "sample", {"out": digest(out)}, draws="randn",
              inputs=inputs, call=call,
              options={**options, "net": {**SMALL, **own},
                       "image_embed_dim": 16})


prior_sample("DDPM with all clamps, sigmoid schedule",
             dict(timesteps=25, beta_schedule="sigmoid", cond_drop_prob=.1,
                  sampling_clamp_l2norm=True, init_image_embed_l2norm=True,
                  sampling_final_clamp_l2norm=True), dict(cond_scale=1.25))
prior_sample("DDIM that predicts noise, self-conditioned",
             dict(timesteps=25, sample_timesteps=4, predict_x_start=False),
             {}, self_cond=True)

# ---- U-Net ----


def unet(name, options, inputs, grads=(), **call):
    net = fill(d2.Unet(**plain(options)))
    x = tensors(inputs)
    t = x.pop("t")
    with doubles():
        out = net.forward_with_cond_scale(x.pop("x"), t, **x, **call)
        expect = {"params": count(net), **trained(out, net, grads)}
    cases.add(name, "unet", expect, options=options, inputs=inputs, call=call)


UB = dict(dim=8, image_embed_dim=12, cond_dim=10, attn_dim_head=4,
          attn_heads=2, resnet_groups=4)
unet("everything on, an oblong picture",
     dict(UB, dim_mults=[2, 1, 4], num_resnet_blocks=[1, 2, 1],
          resnet_groups=[4, 2, 8], self_attn=[False, True, True],
          lowres_cond=True, lowres_noise_cond=True, self_cond=True,
          cosine_sim_cross_attn=True, cosine_sim_self_attn=True,
          cond_on_text_encodings=True, text_embed_dim=14, max_text_len=6,
          cond_on_image_embeds=True, num_image_tokens=3, num_time_tokens=1,
          init_conv_kernel_size=5, resnet_weight_standardization=True,
          cross_embed_downsample=True, memory_efficient=True,
          scale_skip_connection=True, final_conv_kernel_size=5,
          combine_upsample_fmaps=True, channels_out=6),
     dict(x=In(2, 3, 16, 24), image_embed=In(2, 12), t=In(2, ints=[3, 7]),
          lowres_cond_img=In(2, 3, 16, 24), self_cond=In(2, 3, 16, 24),
          lowres_noise_level=In(2, ints=[10, 990]),
          text_encodings=In(2, 8, 14, zero=[[0, 3], [1, 0], [1, 7]])),
     ["null_text_embed", "upsample_combiner.fmap_convs.1.project.weight"])
unet("everything off",
     dict(UB, dim_mults=[1, 2], num_resnet_blocks=1, init_cross_embed=False,
          add_image_embeds_to_time=False, pixel_shuffle_upsample=False,
          cond_on_image_embeds=True, init_conv_kernel_size=3),
     dict(x=In(2, 3, 8, 8), image_embed=In(2, 12), t=In(2, ints=[0, 99])),
     ["init_conv.weight", "null_image_embed"])
unet("one channel, linear attention, three samples",
     dict(UB, dim_mults=[1, 3], num_resnet_blocks=2, channels=1,
          channels_out=2, sparse_attn=True, cond_on_image_embeds=True),
     dict(x=In(3, 1, 12, 4), image_embed=In(3, 12),
          t=In(3, ints=[3, 7, 11])),
     ["downs.0.3.fn.to_qkv.weight"])
unet("guidance without image conditions",
     dict(UB, dim_mults=[1, 1], num_resnet_blocks=1, text_embed_dim=9,
          cond_on_text_encodings=True, max_text_len=3, self_attn=True),
     dict(x=In(2, 3, 8, 8), image_embed=In(2, 12), t=In(2, ints=[3, 7]),
          text_encodings=In(2, 5, 9)), cond_scale=-1.5)

# ---- decoder ----

U1 = dict(dim=8, image_embed_dim=12, cond_dim=10, dim_mults=[1, 2],
          attn_dim_head=4, attn_heads=2, resnet_groups=4,
          num_resnet_blocks=1)
U2 = dict(U1, text_embed_dim=14, cond_on_text_encodings=True, max_text_len=6)
U3 = dict(U1, dim=4, dim_mults=[1, 2, 4], memory_efficient=True,
          resnet_groups=2)
NO_DROP = dict(image_cond_drop_prob=0., text_cond_drop_prob=0.)
WORDS = In(2, 4, 14, zero=[[0, 3], [1, 2]])


def named(options, number):
    """Names of a U-Net's parameters: below unets.N where there are several."""
    if len(options["unet"]) == 1:
        return lambda name: name
    return lambda name: f"unets.{number - 1}.{name}"


def decoder(options):
    o = plain(options)
    d = d2.Decoder(tuple(d2.Unet(**u) for u in o.pop("unet")), **o).double()
    for i, net in enumerate(d.unets):
        fill(net, named(options, i + 1))
    return d.eval()


def decoder_loss(name, options, inputs, number, t, level=None, grads=()):
    d = decoder(options)
    x = tensors(inputs)
    noise, level = x.pop("noise"), [level] if level else []
    for key in "lowres_noise_level", "self_cond_coin", "t":
        x.pop(key, None)
    net = d.unets[number - 1]
    lowres = x.pop("randn0", None)
    order = ([lowres] if lowres is not None else []) + [noise]
    with doubles(), times_are(t, *level), coin_is(
            inputs, "self_cond_coin"), mock.patch.object(
            torch, "randn_like", lambda _: order.pop(0)):
        loss = d(x.pop("image"), unet_number=number, **x)
        expect = {"loss": loss.item(),
                  **gradients(loss, net, grads, named(options, number))}
    more = {"draws": "randn"} if lowres is not None else {}
    inputs.pop("randn0", None)
    cases.add(name, "decoder", expect, options=options, inputs=inputs,
              call={"unet_number": number}, **more)


def pictures(n):
    return dict(image=In(2, 3, n, n, fill="img", scale=.5, add=.5),
                image_embed=In(2, 12))


CASCADE = dict(unet=[U1, U2, U3], image_sizes=[8, 16, 32], timesteps=50,
               blur_prob=1., blur_sigma=.8, blur_kernel_size=5, **NO_DROP)
decoder_loss("cascade of three: the first, of too large pictures", CASCADE,
             dict(pictures(40), text_encodings=WORDS, noise=In(2, 3, 8, 8),
                  t=In(2, ints=[20, 49])), 1, [20, 49])
decoder_loss("cascade of three: the second reads text", CASCADE,
             dict(pictures(32), text_encodings=WORDS, noise=In(2, 3, 16, 16),
                  t=In(2, ints=[3, 33])), 2, [3, 33],
             grads=["unets.1.null_text_embed", "unets.1.text_to_cond.weight"])
decoder_loss("cascade of three: the third, linear schedule", CASCADE,
             dict(pictures(32), text_encodings=WORDS, noise=In(2, 3, 32, 32),
                  t=In(2, ints=[0, 26])), 3, [0, 26])
decoder_loss("the second is told how noisy the first's picture is",
             dict(unet=[U1, U1], image_sizes=[8, 16], timesteps=60,
                  use_noise_for_lowres_cond=True,
                  use_blur_for_lowres_cond=False, lowres_downsample_first=False,
                  learned_variance=[False, True], loss_type="l1",
                  predict_x_start=[False, True], **NO_DROP),
             dict(pictures(16), noise=In(2, 3, 16, 16),
                  randn0=In(2, 3, 16, 16), t=In(2, ints=[8, 50]),
                  lowres_noise_level=In(2, ints=[150, 800])),
             2, [8, 50], level=[150, 800])
decoder_loss("constrained variance, p2 weights, no normalizing",
             dict(unet=[U1], image_sizes=[8], timesteps=30,
                  beta_schedule=["sigmoid"], vb_loss_weight=.1,
                  learned_variance_constrain_frac=True,
                  p2_loss_weight_gamma=.5, p2_loss_weight_k=2,
                  auto_normalize_img=False, **NO_DROP),
             dict(pictures(8), noise=In(2, 3, 8, 8), t=In(2, ints=[4, 29])),
             1, [4, 29])


decoder_loss("a self-conditioned U-Net, the coin says yes",
             dict(unet=[dict(U1, self_cond=True)], image_sizes=[8],
                  timesteps=30, **NO_DROP),
             dict(pictures(8), noise=In(2, 3, 8, 8), t=In(2, ints=[4, 29]),
                  self_cond_coin=In(values=[1.])), 1, [4, 29])


def trainer(name, options, trained_by, pictures_of, t, number=1, leaves=()):
    """Some steps of DecoderTrainer; pictures, noise and embeddings differ
    from step to step."""
    from dalle2_pytorch.trainer import DecoderTrainer
    d = decoder(options)
    net = d.unets[number - 1]
    steps, expect = len(t), []
    size = options["image_sizes"][number - 1]
    inputs = dict(image=In(2, 3, pictures_of, pictures_of, fill="img<s>",
                           scale=.5, add=.5),
                  noise=In(2, 3, size, size, fill="noise<s>"),
                  image_embed=In(2, 12, fill="embed<s>"),
                  t=In(2, ints=t))
    with doubles():
        own = DecoderTrainer(d, **plain(trained_by)).double()
        d.train()
        norms = []
        clip = own.accelerator.clip_grad_norm_
        own.accelerator.clip_grad_norm_ = lambda *a: norms.append(clip(*a))
        for s in range(steps):
            x = {k: i.at(s) for k, i in inputs.items() if k != "t"}
            noise = x.pop("noise")
            lr = getattr(own, f"optim{number - 1}").param_groups[0]["lr"]
            with times_are(t[s]), mock.patch.object(
                    torch, "randn_like", lambda _: noise):
                loss = own(**x, unet_number=number)
            own.update(number)
            told = {"loss": loss, "lr": lr,
                    "norm": {"params": norm(net.parameters())}}
            if norms:
                told["grad_norm"] = norms[-1].item()
            if trained_by.get("use_ema", True):
                told["norm"]["ema"] = norm(
                    own.ema_unets[number - 1].ema_model.parameters())
            expect.append(told)
    inputs["t"] = PerStep(t)
    after = dict(net.named_parameters())
    after = {n: digest(after[n]) for n in leaves}
    cases.add(name, "decoder_step", {"steps": expect, "leaves": after},
              steps=steps,
              options={**trained_by, "decoder": options}, inputs=inputs,
              call={"unet_number": number})


class PerStep(In):
    """Whole numbers of each step."""

    def __init__(self, rows):
        super().__init__(len(rows[0]))
        self.rows = rows

    def lua(self):
        return (f"{{ {self.shape[0]}, ints = function(s) return ({lua(self.rows)})"
                "[s + 1] end }")


trainer("trained: cosine, warm-up, no groups, loose clipping",
        dict(unet=[U1], image_sizes=[8], timesteps=100, **NO_DROP),
        dict(lr=2e-3, wd=.1, eps=1e-6, warmup_steps=2,
             cosine_decay_max_steps=6, max_grad_norm=10., group_wd_params=False,
             ema_beta=.9, ema_update_after_step=1, ema_update_every=2,
             ema_inv_gamma=2., ema_power=.75, ema_min_value=.1), 8,
        [[5, 57], [12, 88], [99, 3], [41, 41], [7, 63]],
        leaves=["null_image_embed", "null_image_hiddens", "to_out.bias"])
trainer("trained: the second of two, without averages or decay",
        dict(unet=[U1, dict(U1, dim_mults=[1, 1])], image_sizes=[8, 16],
             timesteps=60, blur_prob=1., **NO_DROP),
        dict(lr=[1e-4, 5e-3], wd=0., max_grad_norm=.05, use_ema=False), 16,
        [[5, 57], [12, 31], [59, 3]], number=2)


def decoder_sample(name, options, call, inputs=None):
    d = decoder(options)
    inputs = inputs or dict(image_embed=In(2, 12))
    x = tensors(inputs)
    if "inpaint_mask" in x:
        x["inpaint_mask"] = x["inpaint_mask"].bool()
    with doubles(), draws("randn"), torch.no_grad():
        out = d.sample(**x, **call)
    cases.add(name, "decoder_sample", {"out": digest(out)}, options=options,
              inputs=inputs, call=call, draws="randn")


decoder_sample("DDIM with eta, dynamic threshold, guided",
               dict(unet=[U1], image_sizes=[8], timesteps=30,
                    sample_timesteps=5, ddim_sampling_eta=.5,
                    use_dynamic_thres=True, dynamic_thres_percentile=.9),
               dict(cond_scale=1.5))
decoder_sample("two U-Nets, v, the second noised",
               dict(unet=[U1, U1], image_sizes=[8, 16], timesteps=24,
                    sample_timesteps=3, use_noise_for_lowres_cond=True,
                    use_blur_for_lowres_cond=False, predict_v=True,
                    learned_variance=False), {})
decoder_sample("inpainting: two resamples a step",
               dict(unet=[U1], image_sizes=[8], timesteps=22,
                    learned_variance=False),
               dict(inpaint_resample_times=2),
               dict(image_embed=In(2, 12),
                    inpaint_image=In(2, 3, 8, 8, fill="img", scale=.5,
                                     add=.5),
                    inpaint_mask=In(2, 8, 8, values=(
                        bits("mask", 128) % 2).tolist())))

# ---- CLIP, OpenAI's adapter, the discriminator ----

CLIP = dict(dim_text=12, dim_image=16, dim_latent=8, num_text_tokens=50,
            text_enc_depth=2, visual_enc_depth=1, text_seq_len=6,
            text_heads=2, text_dim_head=4, visual_heads=2, visual_dim_head=8,
            visual_image_size=12, visual_patch_size=4,
            visual_patch_dropout=0.)


def clip(name, options, inputs, grads=()):
    from x_clip import CLIP as Model
    net = fill(Model(**options)).train()
    x = tensors(inputs)
    with doubles():
        loss = net(**x, return_loss=True)
        expect = {"params": count(net), "loss": loss.item(),
                  **gradients(loss, net, grads)}
    cases.add(name, "clip", expect, options=options, inputs=inputs)


PAIRS = dict(text=In(3, 6, ints=[[8, 34, 11, 14, 48, 30], [36, 11, 39, 0, 0, 0],
                                 [5, 5, 5, 5, 5, 0]]),
             image=In(3, 3, 12, 12, fill="img"))
clip("decoupled loss, rotary positions",
     dict(CLIP, decoupled_contrastive_learning=True, text_rotary_pos_emb=True),
     PAIRS, ["temperature"])
clip("extra projections, all tokens",
     dict(CLIP, extra_latent_projection=True, use_all_token_embeds=True),
     PAIRS, ["to_text_latent_extra.weight"])


def openai(name, options, text):
    import clip as original
    from clip.model import CLIP as Model
    net = fill(Model(**options))
    size = options["image_resolution"]
    steps = original.clip._transform(size)
    with mock.patch.object(original, "load", lambda _: (net, steps)):
        adapter = d2.OpenAIClipAdapter("any")
    inputs = dict(text=In(2, len(text[0]), ints=text),
                  image=In(2, 3, size + 4, size + 4, fill="img", scale=.5,
                           add=.5))
    x = tensors(inputs)
    with doubles(), torch.no_grad(), mock.patch.object(
            Model, "dtype", property(lambda _: torch.float64)):
        told = adapter.embed_text(x["text"])
        seen = adapter.embed_image(x["image"])
    cases.add(name, "clip_adapter",
              {"text_embed": digest(told.text_embed),
               "text_encodings": digest(told.text_encodings),
               "image_embed": digest(seen.image_embed)},
              options=options, inputs=inputs, call={"make": "openai"})


openai("OpenAI's ViT behind its adapter",
       dict(embed_dim=10, image_resolution=12, vision_layers=2,
            vision_width=64, vision_patch_size=4, context_length=7,
            vocab_size=49408, transformer_width=16, transformer_heads=2,
            transformer_layers=2),
       [[49406, 5, 0, 9, 49407, 0, 0],
        [49406, 7, 77, 11, 3, 1, 49407]])


def discriminator(name, options):
    """return_discr_loss, of a picture and of what `recons` says became of it;
    without its gradient penalty the original returns nothing."""
    net = fill(vq.VQGanVAE(vgg=torch.nn.Identity(), **options))
    size = options["image_size"]
    inputs = dict(img=In(2, 3, size, size), recons=In(2, 3, size, size))
    x = tensors(inputs)
    with doubles(), mock.patch.object(net, "encode", lambda _: None), \
            mock.patch.object(net, "decode", lambda _, **__: (
                x["recons"], None, None)):
        loss = net(x["img"], return_discr_loss=True)
        expect = {"loss": loss.item(),
                  **gradients(loss, net, ["discr.layers.0.0.weight",
                                          "discr.to_logits.2.weight"])}
    cases.add(name, "vqgan_discriminator", expect, options=options,
              inputs=inputs)


VQ = dict(dim=16, layers=2, discr_layers=2, vq_codebook_dim=6,
          vq_codebook_size=10, vq_kmeans_init=False, encdec_resnet_groups=4,
          encdec_attn_dim_head=4, encdec_attn_heads=2)
discriminator("hinge with gradient penalty", dict(VQ, image_size=24))
discriminator("BCE with gradient penalty",
              dict(VQ, image_size=32, use_hinge_loss=False))


def vqgan(name, options, inputs, leaves):
    net = fill(vq.VQGanVAE(use_vgg_and_gan=False, **options))
    x = tensors(inputs)["img"]
    embed = net.vq._codebook.embed
    embed.copy_(leaves["vq._codebook.embed"].tensor("codebook"))
    with doubles(), torch.no_grad():
        z = net.encode(x)
        y, indices, _ = net.decode(z, return_indices_and_loss=True)
    cases.add(name, "vqgan", {"params": count(net), "z": digest(z),
                              "decode": digest(y),
                              "indices": {"first": indices.flatten()[:12]
                                          .tolist()}},
              options={**options, "use_vgg_and_gan": False}, inputs=inputs,
              leaves={k: Filled(v) for k, v in leaves.items()})


def vqgan_train(name, options, inputs, leaves):
    """The loss of reconstruction, and the codebook that it leaves behind."""
    net = fill(vq.VQGanVAE(use_vgg_and_gan=False, **options)).train()
    book = net.vq._codebook
    for key, x in leaves.items():
        getattr(book, key.rsplit(".", 1)[1]).copy_(x.tensor("codebook"))
    with doubles():
        loss = net(tensors(inputs)["img"], return_loss=True)
        expect = {"loss": loss.item(), **gradients(loss, net)}
    expect["leaves"] = {f"vq._codebook.{key}": digest(getattr(book, key))
                        for key in ("cluster_size", "embed")}
    cases.add(name, "vqgan_train", expect, inputs=inputs,
              options={**options, "use_vgg_and_gan": False},
              leaves={k: Filled(v) for k, v in leaves.items()})


def lowres(name, options, inputs, call):
    """The picture that the next U-Net of a cascade is given."""
    x = tensors(inputs)["image"]
    net = d2.LowresConditioner(**plain(options))
    with doubles(), coin_is(inputs, "blur_coin"):
        out, _ = net(x, **call)
    cases.add(name, "lowres", {"out": digest(out)}, options=options,
              inputs=inputs, call=call)


class Filled(In):
    """Like In, of a leaf, whose sizes are its own."""

    def __init__(self, other):
        super().__init__(**other.how)


vqgan("three layers, attention in two, grey pictures",
      dict(dim=8, image_size=24, channels=1, layers=3, vq_codebook_dim=5,
           vq_codebook_size=12, vq_kmeans_init=False, encdec_resnet_groups=2,
           encdec_attn_dim_head=4, encdec_attn_heads=3,
           encdec_num_resnet_blocks=2, encdec_use_attn=(False, True, True)),
      dict(img=In(2, 1, 24, 24)),
      {"vq._codebook.embed": In(1, 12, 5, fill="codebook", l2norm=True)})

if __name__ == "__main__":
    cases.show(sys.stdout)
