"""torch_models.py -- models/dalle2 once more, by hand in PyTorch.

Same networks, sizes, losses and optimizer step as clip.lua, prior.lua and
decoder.lua; written as a PyTorch user would write them, with its fused layers
(group_norm, layer_norm, gelu, silu, AdamW) where it has them.  Attention is
matmul, softmax, matmul, as in nn.lua, or scaled_dot_product_attention when
SDPA is set.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

SDPA = False
EMBED, TEXT, WORDS, LENGTH = 64, 64, 28, 8
PRIOR, COND, HEADS, GROUPS = 128, 256, 4, 8
COLOURS, GROUNDS, GARMENTS = 8, 4, 10


# ---- data.lua ----

class Data(nn.Module):
    """Grey photographs and labels u8 -> coloured pictures and captions."""

    def __init__(self):
        super().__init__()
        def table(*size):
            return torch.rand(*size)
        self.register_buffer("colour", table(COLOURS, 3))
        self.register_buffer("ground", table(GROUNDS, 3))
        self.register_buffer("held", torch.randint(0, GARMENTS, (COLOURS,)))
        self.register_buffer("one", torch.tensor([1, 0, 0, 2, 1, 0, 3, 0]))
        self.register_buffer("two", torch.tensor([1, 0, 0, 27, 2, 1, 0, 3]))
        self.register_buffer("slot", torch.eye(LENGTH, dtype=torch.long))

    def forward(self, image, label):
        b = image.shape[0]
        c = (torch.rand(b) * COLOURS).long()
        g = (torch.rand(b) * GROUNDS).long()
        c = torch.where(self.held[c] == label, (c + 1) % COLOURS, c)
        grey = (image.float() * (1 / 255))[:, None]        # [b, 1, 28, 28]
        alpha = (grey * 3).clamp(max=1)
        fore = self.colour[c][:, :, None, None]
        back = self.ground[g][:, :, None, None]
        picture = alpha * fore * (grey * 0.65 + 0.35) + (1 - alpha) * back
        boot = (label == GARMENTS - 1)[:, None]
        slot = self.slot
        one = self.one + (g[:, None] + 12) * slot[5]
        two = self.two + (g[:, None] + 12) * slot[6]
        tokens = torch.where(boot, two, one) + (c[:, None] + 4) * slot[1] \
            + (label.long()[:, None] + 16) * slot[2]
        number = (label.long() * COLOURS + c) * GROUNDS + g
        return picture * 2 - 1, tokens, number


# ---- nn.lua ----

class Attention(nn.Module):
    def __init__(self, k, heads, causal=False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v = (nn.Linear(k, k, bias=False)
                                  for _ in range(3))
        self.out = nn.Linear(k, k)

    def forward(self, x):
        b, n, k = x.shape
        def split(y):                                      # [b, h, n, d]
            return y.view(b, n, self.heads, -1).transpose(1, 2)
        q, key, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        if SDPA:
            y = F.scaled_dot_product_attention(q, key, v,
                                               is_causal=self.causal)
        else:
            logit = (q * q.shape[-1] ** -0.5) @ key.transpose(-1, -2)
            if self.causal:
                seen = torch.ones(n, n, dtype=torch.bool).tril()
                logit = logit.masked_fill(~seen, -1e9)
            y = logit.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, n, k))


class Transformer(nn.Module):
    def __init__(self, k, heads, causal=False):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(k), nn.LayerNorm(k)
        self.attn = Attention(k, heads, causal)
        self.up, self.down = nn.Linear(k, 4 * k), nn.Linear(4 * k, k)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Time(nn.Module):
    def __init__(self, sines, width):
        super().__init__()
        j = torch.arange(sines // 2)
        self.register_buffer("freq", 1000 * torch.exp(
            -math.log(10000) * j / (sines // 2 - 1)))
        self.up, self.down = nn.Linear(sines, width), nn.Linear(width, width)

    def forward(self, t):
        a = t[:, None] * self.freq
        return self.down(F.silu(self.up(torch.cat([a.sin(), a.cos()], 1))))


class Resnet(nn.Module):
    def __init__(self, c, out):
        super().__init__()
        self.scale, self.shift = nn.Linear(COND, out), nn.Linear(COND, out)
        self.norm1, self.norm2 = nn.GroupNorm(GROUPS, c), \
            nn.GroupNorm(GROUPS, out)
        self.conv1 = nn.Conv2d(c, out, 3, padding=1)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(c, out, 1) if c != out else nn.Identity()

    def forward(self, x, cond):
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.scale(cond), self.shift(cond)
        h = self.norm2(h) * (scale + 1)[:, :, None, None] \
            + shift[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(h))


class Look(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm, self.attn = nn.GroupNorm(GROUPS, c), Attention(c, HEADS)

    def forward(self, x):
        y = self.norm(x).flatten(2).transpose(1, 2)        # [b, h w, c]
        return x + self.attn(y).transpose(1, 2).reshape(x.shape)


# ---- net.lua ----

class Eye(nn.Module):
    """[b, 3, 28, 28] -> [b, 64 * 49]."""

    def __init__(self):
        super().__init__()
        self.conv = nn.ModuleList([nn.Conv2d(12, 32, 3, padding=1),
                                   nn.Conv2d(128, 64, 3, padding=1),
                                   nn.Conv2d(64, 64, 3, padding=1)])
        self.norm = nn.ModuleList([nn.GroupNorm(GROUPS, c)
                                   for c in (32, 64, 64)])

    def block(self, i, x):
        return F.silu(self.norm[i](self.conv[i](x)))

    def forward(self, x):
        x = self.block(0, F.pixel_unshuffle(x, 2))
        x = self.block(1, F.pixel_unshuffle(x, 2))
        return (x + self.block(2, x)).flatten(1)


class ClipImage(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye, self.embed = Eye(), nn.Linear(64 * 49, EMBED)

    def forward(self, x):
        return F.normalize(self.embed(self.eye(x)), dim=-1)


class ClipText(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, TEXT)
        self.place = nn.Parameter(torch.randn(LENGTH, TEXT) * 0.1)
        self.block = nn.ModuleList([Transformer(TEXT, 4) for _ in range(2)])
        self.norm, self.embed = nn.LayerNorm(TEXT), nn.Linear(TEXT, EMBED)

    def forward(self, tokens):
        x = self.words(tokens) + self.place
        for block in self.block:
            x = block(x)
        x = self.norm(x)
        return F.normalize(self.embed(x.mean(1)), dim=-1), x


def noised(x):
    """x_t and t, as diffusion.lua's cosine schedule has it."""
    t = torch.rand(x.shape[0]) * 0.998 + 0.001
    a = ((t + 0.008) * (math.pi / 2 / 1.008)).cos() \
        / math.cos(0.008 / 1.008 * math.pi / 2)
    a = a.clamp(0, 1)
    s = (1 - a * a).clamp(min=0).sqrt()
    shape = (-1,) + (1,) * (x.dim() - 1)
    return a.view(shape) * x + s.view(shape) * torch.randn_like(x), t


def scaled(e):
    return e * EMBED ** 0.5


class Clip(nn.Module):
    BATCH = 128

    def __init__(self):
        super().__init__()
        self.image, self.text = ClipImage(), ClipText()
        self.sharpness = nn.Parameter(torch.tensor(math.log(14)))
        self.data = Data()

    def forward(self, image, label):
        picture, tokens, number = self.data(image, label)
        text, _ = self.text(tokens)
        cosine = self.image(picture) @ text.T
        logit = cosine * self.sharpness.clamp(max=math.log(100)).exp()
        same = (number[:, None] == number).float()
        target = same / same.sum(1, keepdim=True)
        return (F.cross_entropy(logit, target)
                + F.cross_entropy(logit.T, target)) * 0.5


class Prior(nn.Module):
    BATCH = 64

    def __init__(self):
        super().__init__()
        self.data = Data()
        self.frozen = nn.ModuleList([ClipImage(), ClipText()])
        self.frozen.requires_grad_(False)
        self.query = nn.Parameter(torch.randn(PRIOR) * 0.02)
        self.words, self.told = nn.Linear(TEXT, PRIOR), \
            nn.Linear(EMBED, PRIOR)
        self.time, self.noised = Time(COND, PRIOR), nn.Linear(EMBED, PRIOR)
        self.place = nn.Parameter(torch.randn(LENGTH + 4, PRIOR) * 0.02)
        self.block = nn.ModuleList([Transformer(PRIOR, HEADS, True)
                                    for _ in range(3)])
        self.norm, self.out = nn.LayerNorm(PRIOR), nn.Linear(PRIOR, EMBED)
        self.share = nn.Linear(PRIOR, EMBED)

    def net(self, x, t, text, words):
        b, time = x.shape[0], self.time(t)
        y = torch.cat([self.words(words), self.told(scaled(text))[:, None],
                       time[:, None], self.noised(x)[:, None],
                       self.query.expand(b, 1, PRIOR)], 1) + self.place
        for block in self.block:
            y = block(y)
        return self.out(self.norm(y[:, -1])) + x * self.share(F.silu(time))

    def forward(self, image, label):
        picture, tokens, _ = self.data(image, label)
        with torch.no_grad():
            e = scaled(self.frozen[0](picture))
            text, words = self.frozen[1](tokens)
        x, t = noised(e)
        return F.mse_loss(self.net(x, t, text, words), e)


class Decoder(nn.Module):
    BATCH = 32

    def __init__(self, c1=64, c2=128):
        super().__init__()
        self.data, self.frozen = Data(), ClipImage()
        self.frozen.requires_grad_(False)
        self.null = nn.Parameter(torch.randn(EMBED) * 0.5)
        self.time, self.image = Time(64, COND), nn.Linear(EMBED, COND)
        self.enter = nn.Conv2d(12, c1, 3, padding=1)
        self.down1, self.down2 = Resnet(c1, c1), Resnet(c2, c2)
        self.shrink = nn.Conv2d(4 * c1, c2, 1)
        self.mid, self.look = Resnet(c2, c2), Look(c2)
        self.up2, self.grow = Resnet(2 * c2, c2), nn.Conv2d(c2, 4 * c1, 1)
        self.up1, self.norm = Resnet(2 * c1, c1), nn.GroupNorm(GROUPS, c1)
        self.out = nn.Conv2d(c1, 12, 3, padding=1)

    def net(self, x, t, e, drop):
        e = torch.where(drop[:, None], self.null, e)
        cond = F.silu(self.time(t) + self.image(e))
        y = self.enter(F.pixel_unshuffle(x, 2))
        skip1 = self.down1(y, cond)
        skip2 = self.down2(self.shrink(F.pixel_unshuffle(skip1, 2)), cond)
        y = self.look(self.mid(skip2, cond))
        y = self.up2(torch.cat([y, skip2], 1), cond)
        y = F.pixel_shuffle(self.grow(y), 2)
        y = self.up1(torch.cat([y, skip1], 1), cond)
        return F.pixel_shuffle(self.out(F.silu(self.norm(y))), 2)

    def forward(self, image, label):
        picture, _, _ = self.data(image, label)
        with torch.no_grad():
            e = scaled(self.frozen(picture))
            e = e + torch.randn_like(e) * 0.1
            drop = torch.rand(e.shape[0]) < 0.1
        x, t = noised(picture)
        return F.mse_loss(self.net(x, t, e, drop).float(), picture)


# ---- optim.lua ----

class Training:
    """One step: forward, backward, clip by the global norm, AdamW, EMA."""

    def __init__(self, model, bf16):
        self.model, self.bf16 = model, bf16
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.ema = [p.detach().clone() for p in self.params]
        wide = [p for p in self.params if p.dim() >= 2]
        flat = [p for p in self.params if p.dim() < 2]
        self.adam = torch.optim.AdamW(
            [{"params": wide, "weight_decay": 0.01},
             {"params": flat, "weight_decay": 0.0}],
            lr=2e-3, betas=(0.9, 0.99), fused=True)
        self.loss = model

    def step(self, image, label):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.loss(image, label)
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.params, 1.0, foreach=True)
        self.adam.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.ema, self.params, 0.01)
        return loss.item()

    def persistent(self):
        """Bytes that outlive a step."""
        n = sum(t.nbytes for t in [*self.model.parameters(),
                                   *self.model.buffers(), *self.ema])
        return n + sum(t.nbytes for s in self.adam.state.values()
                       for t in s.values() if torch.is_tensor(t))


MODELS = {"clip": Clip, "prior": Prior, "decoder": Decoder}
