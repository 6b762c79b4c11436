#!/usr/bin/env python3
"""qwen.py -- makes cases of docs/parity.md from diffusers' Qwen-Image.

    pip install diffusers==0.37.0 peft==0.21.2 transformers==4.57.1 \\
        accelerate==1.11.0 safetensors==0.8.0 torch==2.15.0
    qwen.py > tests/parity/made_qwen.lua

Every number comes out of the unmodified modules, in doubles (fill.doubles).
LoRA weights are PEFT's; their names here are those of its checkpoints, without
the adapter's own name.
"""
import sys
import warnings

import torch

from fill import (Cases, In, count, digest, doubles, f, fill, gradients, mse,
                  norm, tensors, trained)

warnings.filterwarnings("ignore")
from diffusers import AutoencoderKLQwenImage  # noqa: E402
from diffusers import QwenImageTransformer2DModel  # noqa: E402
from peft import LoraConfig  # noqa: E402

HEAD = """\
-- made_qwen.lua -- more configurations of Qwen-Image (diffusers 0.37, PEFT
-- 0.21), made by tests/parity/reference/qwen.py from the unmodified modules."""

cases = Cases(HEAD, "models/qwen_image/transformer.lua")
torch.set_num_threads(1)

SMALL = dict(patch_size=2, in_channels=16, out_channels=4, num_layers=2,
             attention_head_dim=16, num_attention_heads=4,
             joint_attention_dim=12, axes_dims_rope=[8, 4, 4])


def inputs(options, shapes, words=5, batch=2, mask=None, time=(.7, .3),
           addition=None):
    tokens = sum(a * b * c for a, b, c in shapes)
    i = dict(hidden_states=In(batch, tokens, options["in_channels"]),
             encoder_hidden_states=In(batch, words,
                                      options["joint_attention_dim"]),
             timestep=In(batch, values=list(time)))
    if mask:
        i["encoder_hidden_states_mask"] = In(batch, words, values=mask)
    if addition:
        i["additional_t_cond"] = In(batch, ints=addition)
    return i


def forward(net, i, shapes, more=None):
    x = tensors(i)
    x.update(more or {})
    if "encoder_hidden_states_mask" in x:
        x["encoder_hidden_states_mask"] = \
            x["encoder_hidden_states_mask"].bool()
    batch = x["hidden_states"].shape[0]
    return net(img_shapes=[[tuple(s) for s in shapes]] * batch,
               return_dict=False, **x)[0]


def built(options):
    o = dict(options, axes_dims_rope=tuple(options["axes_dims_rope"]))
    return fill(QwenImageTransformer2DModel(**o))


def transformer(name, options, shapes, grads=(), wrt=(), **how):
    net, i = built(options), inputs(options, shapes, **how)
    n = shapes[0][0] * shapes[0][1] * shapes[0][2]
    more = {k: i[k].tensor(k).requires_grad_() for k in wrt}
    with doubles():
        out = forward(net, i, shapes, more)
        expect = {"params": count(net), "target": digest(out[:, :n]),
                  **trained(out, net, grads)}
        if wrt:
            out = forward(net, i, shapes, more)
            g = torch.autograd.grad(mse(out), list(more.values()))
            expect["input_grads"] = {k: norm([x]) for k, x in zip(wrt, g)}
    cases.add(name, "transformer", expect, options=options, inputs=i,
              call={"img_shapes": shapes})


transformer("two references, both texts masked, one with a hole", SMALL,
            [[1, 4, 6], [1, 5, 3], [1, 2, 7]], words=6,
            mask=[[1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 1, 0]],
            grads=["transformer_blocks.0.txt_mod.1.weight",
                   "transformer_blocks.1.attn.add_q_proj.weight"],
            wrt=["hidden_states", "encoder_hidden_states"])
transformer("the references' time is zero", dict(SMALL, zero_cond_t=True),
            [[1, 3, 5], [1, 4, 4], [1, 1, 9]],
            grads=["transformer_blocks.1.img_mod.1.bias"])
transformer("three blocks, three heads of twelve, one word, three samples",
            dict(SMALL, num_layers=3, num_attention_heads=3,
                 attention_head_dim=12, axes_dims_rope=[4, 2, 6],
                 joint_attention_dim=7, out_channels=3, in_channels=12),
            [[1, 7, 5]], words=1, batch=3, time=(1., 0., .125),
            grads=["norm_out.linear.weight", "txt_norm.weight"],
            wrt=["timestep"])
transformer("layered: three axes of layers, a condition beside the time",
            dict(SMALL, use_layer3d_rope=True, use_additional_t_cond=True),
            [[1, 4, 6], [1, 4, 6], [1, 3, 5]],
            grads=["time_text_embed.addition_t_embedding.weight"],
            addition=[1, 0])
transformer("patches of one, several frames",
            dict(SMALL, patch_size=1, in_channels=8, out_channels=8),
            [[3, 2, 4], [2, 1, 3]], words=4)
transformer("as many channels out as in, said by null",
            dict(SMALL, num_layers=1, out_channels=None), [[1, 3, 2]])

# ---- LoRA ----


def plain(name):
    """PEFT's name of a parameter, as checkpoints have it."""
    return name.replace(".base_layer", "").replace(".default", "")


def lora(name, options, shapes, rank, alpha, targets, grads, **how):
    net = QwenImageTransformer2DModel(**dict(
        options, axes_dims_rope=tuple(options["axes_dims_rope"])))
    net.requires_grad_(False)
    net.add_adapter(LoraConfig(r=rank, lora_alpha=alpha,
                               target_modules=targets))
    fill(net, plain)
    i = inputs(options, shapes, **how)
    total = sum(p.numel() for p in net.parameters() if p.requires_grad)
    with doubles():
        out = forward(net, i, shapes)
        expect = {"params": count(net), "trainable": total,
                  **trained(out, net, grads, plain)}
    cases.add(name, "lora", expect, model="models/qwen_image/lora.lua",
              options=dict(options, rank=rank, alpha=alpha, targets=targets),
              inputs=i, call={"img_shapes": shapes})


TWELVE = ["to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj",
          "to_out.0", "to_add_out", "img_mlp.net.2", "img_mod.1",
          "txt_mlp.net.2", "txt_mod.1"]
lora("LoRA on attention, rank 4", SMALL, [[1, 4, 6]], 4, 4,
     ["to_k", "to_q", "to_v", "to_out.0"],
     ["transformer_blocks.0.attn.to_q.lora_A.weight",
      "transformer_blocks.1.attn.to_out.0.lora_B.weight"])
lora("LoRA on twelve layers a block, with a reference", SMALL,
     [[1, 4, 6], [1, 5, 3]], 3, 3, TWELVE,
     ["transformer_blocks.0.img_mod.1.lora_B.weight",
      "transformer_blocks.0.txt_mlp.net.2.lora_A.weight",
      "transformer_blocks.1.attn.add_k_proj.lora_A.weight"])
lora("LoRA of alpha 3 and rank 2, masked, times of references zero",
     dict(SMALL, zero_cond_t=True), [[1, 2, 5], [1, 3, 3]], 2, 3, TWELVE,
     ["transformer_blocks.0.attn.to_add_out.lora_A.weight",
      "transformer_blocks.1.img_mod.1.lora_A.weight"],
     mask=[[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])

# ---- VAE ----


def vae(name, options, size):
    net = fill(AutoencoderKLQwenImage(**options))
    i = dict(x=In(1, 3, *size, fill="picture"))
    x = tensors(i)["x"][:, :, None]
    mean, std = (torch.tensor(c, dtype=torch.float64).reshape(1, -1, 1, 1, 1)
                 for c in (net.config.latents_mean, net.config.latents_std))
    with doubles(), torch.no_grad():
        z = net.encode(x).latent_dist.mode()
        y = net.decode(z, return_dict=False)[0]
        z = (z - mean) / std
    cases.add(name, "vae", {"params": count(net), "z": digest(z[:, :, 0]),
                            "decode": digest(y[:, :, 0])},
              model="models/qwen_image/vae.lua", options=options, inputs=i)


vae("an oblong picture", dict(base_dim=8), [24, 40])
vae("two stages, one block each, four channels",
    dict(base_dim=8, z_dim=4, dim_mult=[1, 2], num_res_blocks=1,
         temperal_downsample=[False], latents_mean=[.5, -.25, 0., 1.],
         latents_std=[2., 1., .5, 4.]), [10, 6])
vae("one stage, which makes nothing smaller",
    dict(base_dim=4, z_dim=2, dim_mult=[2], num_res_blocks=1,
         temperal_downsample=[], latents_mean=[0., 1.],
         latents_std=[1., 3.]), [3, 5])

if __name__ == "__main__":
    cases.show(sys.stdout)
