"""fill.py -- what the makers of cases share: the hash fill of docs/parity.md,
digests, doubles, Lua.

A case is written down once: its options, inputs and call go to the original
module here and, as text, into the case file.
"""
import contextlib
import math

import numpy as np
import torch

MASK = 0xFFFFFFFF


def fnv(name):
    h = 0x811C9DC5
    for b in name.encode():
        h = (h ^ b) * 0x01000193 & MASK
    return h


def bits(name, n):
    i = np.arange(n, dtype=np.uint64)
    x = (fnv(name) + i * 0x9E3779B9) & MASK
    x = (x ^ x >> 16) * 0x7FEB352D & MASK
    x = (x ^ x >> 15) * 0x846CA68B & MASK
    return x ^ x >> 16


def f(name, *shape):
    x = (bits(name, math.prod(shape)) >> 8).astype(np.float64) * 2.0**-23 - 1
    return torch.from_numpy(x.reshape(shape))


def fill(module, rename=lambda name: name):
    """Parameters by their names, then all of it in doubles."""
    module.double()
    with torch.no_grad():
        for name, p in module.named_parameters():
            leaf = name.rsplit(".", 1)[-1]
            if name.endswith("rotary_emb.freqs"):
                continue
            x = f(rename(name), *p.shape)
            if leaf in ("g", "gamma") or leaf == "weight" and p.ndim == 1:
                x = 1 + 0.1 * x
            elif p.ndim < 2:
                x = 0.1 * x
            else:
                x = x / math.sqrt(p.numel() / p.shape[0])
            p.copy_(x)
    return module.eval()


@contextlib.contextmanager
def doubles():
    """Evaluate as the float32 branches say, in doubles: what a module calls
    float32 (its eps, its casts) is float64 here."""
    was = torch.float32, torch.float, torch.Tensor.float
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = was
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def draws(name):
    """The k-th normal draw is f(name k)."""
    count = [0]
    was = torch.randn, torch.randn_like

    def one(shape):
        k = count[0]
        count[0] += 1
        return f(f"{name}{k}", *shape)

    def randn(*size, **_):
        return one(size[0] if isinstance(size[0], (tuple, list, torch.Size))
                   else size)

    torch.randn, torch.randn_like = randn, lambda x, **_: one(x.shape)
    try:
        yield count
    finally:
        torch.randn, torch.randn_like = was


# ---- inputs ----

class In:
    """An input: sizes and how it is filled, as docs/parity.md says."""

    def __init__(self, *shape, **how):
        self.shape, self.how = shape, how

    def tensor(self, name):
        how = self.how
        n = math.prod(self.shape)
        if "ints" in how:
            x = torch.from_numpy((bits(how.get("fill", name), n) % how["ints"])
                                 .astype(np.int64)) \
                if isinstance(how["ints"], int) else torch.tensor(how["ints"])
            return x.reshape(self.shape)
        if "values" in how:
            x = torch.tensor(how["values"], dtype=torch.float64)
            x = x.reshape(self.shape)
        else:
            x = f(how.get("fill", name), *self.shape)
        if how.get("l2norm"):
            x = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        x = x * how.get("scale", 1) + how.get("add", 0)
        for at in how.get("zero", ()):
            x[tuple(at)] = 0
        return x

    def at(self, step):
        """Filled by its name at a step."""
        how = dict(self.how, fill=self.how["fill"].replace("<s>", str(step)))
        return In(*self.shape, **how).tensor(None)

    def lua(self):
        parts = [str(n) for n in self.shape]      # none: of no dimension
        parts += [f"{k} = {lua(v)}" for k, v in self.how.items()]
        return "{ " + ", ".join(parts) + " }"


def tensors(inputs):
    return {name: x.tensor(name) for name, x in inputs.items()}


# ---- what comes out ----

def digest(x):
    x = x.detach().double().flatten()
    return {"sum": x.sum().item(), "abs": x.abs().mean().item(),
            "first": x[:3].tolist(), "last": x[-1].item()}


def mse(out):
    return ((out - f("target", *out.shape))**2).mean()


def norm(grads):
    return math.sqrt(sum((g.detach()**2).sum().item() for g in grads
                         if g is not None))


def gradients(loss, module, names=(), rename=lambda name: name):
    """gradL2 and the norms of some, of a loss."""
    pairs = [(rename(n), p) for n, p in module.named_parameters()
             if p.requires_grad]
    grads = torch.autograd.grad(loss, [p for _, p in pairs],
                                allow_unused=True)
    by = {n: g for (n, _), g in zip(pairs, grads)}
    out = {"gradL2": norm(grads)}
    if names:
        out["grads"] = {n: norm([by[n]]) for n in names}
    return out


def trained(out, module, names=(), rename=lambda name: name):
    """The usual digest of an output: its own, mse, gradients."""
    loss = mse(out)
    return {"out": digest(out), "mse": loss.item(),
            **gradients(loss, module, names, rename)}


def count(module):
    return sum(p.numel() for p in module.parameters())


# ---- Lua ----

def lua(x):
    if isinstance(x, In):
        return x.lua()
    if x is None:
        return "dpc.null"
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, float):
        return f"{x:.12g}"
    if isinstance(x, (int, np.integer)):
        return str(x)
    if isinstance(x, str):
        return f'"{x}"'
    if isinstance(x, (list, tuple)):
        return "{ " + ", ".join(lua(v) for v in x) + " }" if x else "{}"
    keys = {k: k if k.isidentifier() else f'["{k}"]' for k in x}
    return "{ " + ", ".join(f"{keys[k]} = {lua(v)}" for k, v in x.items()) \
        + " }"


def wrapped(text, indent):
    """Lines of 80 columns, broken after commas; deeper after the first."""
    lines, line = [], " " * indent
    for word in text.replace(", ", ",\n").split("\n"):
        if len(line) + 1 + len(word) > 80 and line.strip():
            lines.append(line)
            line = " " * (indent + 2)
            if len(line) + len(word) > 80 and " = " in word:
                key, value = word.rsplit(" = ", 1)
                lines.append(line + key + " =")
                word = "  " + value
            line += word
        else:
            line += word if line.isspace() else " " + word
    return "\n".join(lines + [line])


class Cases:
    """Collects cases; `show` prints the file."""

    def __init__(self, head, model):
        self.head, self.model, self.text = head, model, []

    def add(self, name, part, expect, **more):
        lines = [f'  {{ name = "{name}",', f'    part = "{part}",']
        lines += [wrapped(f"{k} = {lua(v)},", 4) for k, v in more.items()
                  if v not in (None, {})]
        lines += [wrapped(f"expect = {lua(expect)} }},", 4)]
        self.text.append("\n".join(lines))

    def show(self, to):
        to.write(f"{self.head}\nreturn {{\n  model = \"{self.model}\",\n")
        to.write("\n".join(self.text) + "\n}\n")
