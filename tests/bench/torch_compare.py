#!/usr/bin/env python3
"""torch_compare.py -- a step of dpc's binary beside PyTorch's, on this machine.

    tests/bench/torch_compare.py [MODEL...] [--dtype f32|bf16] [--blocks N]
        [--steps N] [--dpc PATH] [--data DIR] [--eager-only]
        [--batch N] [--threads N] [--cpu]
        [--recompute WORD] [--channels-last] [--sdpa] [--json FILE]

Needs PyTorch (pip install torch), a built dpc and Fashion-MNIST.  For each
model it prints three ratios of seconds, ours over PyTorch's: the whole step,
products and convolutions (ours: steps of those kinds in --profile; theirs:
the profiler's self time of such ops), and everything else (the difference);
then memory: all that the binary holds over PyTorch's peak of live tensors.

The contestants take turns, a block of steps each, so that a neighbour on the
machine hurts all of them alike; a figure is the median over the blocks of the
block's fastest step.  On a machine that is busy all the time, --cpu --threads 1
compares seconds that the processes computed instead of seconds that passed.
"""
import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")        # before torch

import torch

import torch_models

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
PRODUCT = re.compile(r"convolution|::b?mm$|addmm|bmm|mkldnn_linear|"
                     r"linear_pointwise|_scaled_dot_product")
WARM = 3


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("models", nargs="*", default=list(torch_models.MODELS))
    p.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    p.add_argument("--blocks", type=int, default=5)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--batch", type=int, help="default: the model's own")
    p.add_argument("--cpu", action="store_true")
    p.add_argument("--dpc", default=os.path.join(ROOT, "build/dpc"))
    p.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    p.add_argument("--eager-only", action="store_true")
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--sdpa", action="store_true")
    p.add_argument("--recompute", help="what our backward makes again")
    p.add_argument("--json")
    return p.parse_args()


# ---- ours ----

class Ours:
    def __init__(self, name, a, folder):
        self.path = os.path.join(folder, name)
        self.a, self.folder = a, folder
        run([a.dpc, "compile", "-q", os.path.join(
            ROOT, "models/dalle2", name + ".lua"), "--dtype", a.dtype,
            "--cluster", cluster(a, folder), "-o", self.path,
            "-D", f"batch={batch(a, name)}", *recompute(a)])
        info = json.loads(run([self.path, "info", "--json"]))
        self.bytes = info["leaves_bytes"] + info["arena_bytes"]

    def block(self):
        """Seconds of the fastest step, and of its products: the sum over
        their steps of each one's least."""
        profile = os.path.join(self.folder, "profile")
        metrics = os.path.join(self.folder, "metrics")
        if os.path.exists(metrics):
            os.remove(metrics)
        run([self.path, "train", "--quiet", "--data", "idx:" + self.a.data,
             "--steps", str(self.a.steps + WARM), "--metrics", metrics,
             "--profile", profile])
        with open(metrics) as f:
            records = [json.loads(line) for line in f]
        step = [r["step_s"] for r in records if "step_s" in r][WARM:]
        rows = [r for r in table(profile) if r["entry"] == "train"]
        column = "cpu" if self.a.cpu else "best"
        product = sum(float(r[column]) for r in rows if r["kind"] in PRODUCTS)
        if self.a.cpu:
            return sum(float(r["cpu"]) for r in rows), product
        return min(step), product


PRODUCTS = ("dot", "conv", "pack", "unpack")


def table(path):
    with open(path) as f:
        head = f.readline().rstrip("\n").split("\t")
        return [dict(zip(head, line.rstrip("\n").split("\t"))) for line in f]


def batch(a, name):
    return a.batch or torch_models.MODELS[name].BATCH


def recompute(a):
    return ["--recompute", a.recompute] if a.recompute else []


def cluster(a, folder):
    """This machine with as many cores as threads are asked for."""
    path = os.path.join(folder, "cluster.lua")
    with open(os.path.join(ROOT, "models/clusters/host.lua")) as f:
        text = f.read()
    with open(path, "w") as f:
        f.write(text.replace("return {", "return { cores = %d," % a.threads))
    return path


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


# ---- theirs ----

def pictures(a, n):
    def read(name, head, shape):
        path = os.path.join(a.data, name)
        with gzip.open(path) as f:
            f.read(head)
            data = bytearray(f.read(shape[0] * (784 if len(shape) > 1 else 1)))
        return torch.frombuffer(data, dtype=torch.uint8).view(shape)
    return (read("train-images-idx3-ubyte.gz", 16, (n, 28, 28)),
            read("train-labels-idx1-ubyte.gz", 8, (n,)))


class Theirs:
    def __init__(self, name, a, compiled):
        torch.manual_seed(0)
        model = torch_models.MODELS[name]()
        if a.channels_last:
            model = model.to(memory_format=torch.channels_last)
        self.clock = time.process_time if a.cpu else time.perf_counter
        self.steps, self.batch = a.steps, pictures(a, batch(a, name))
        self.training = torch_models.Training(model, a.dtype == "bf16")
        if compiled:
            self.training.loss = torch.compile(model)
        for _ in range(WARM):
            self.training.step(*self.batch)

    def block(self):
        best = []
        for _ in range(self.steps):
            begin = self.clock()
            self.training.step(*self.batch)
            best.append(self.clock() - begin)
        return min(best), min(best) * statistics.median(
            self.share() for _ in range(3))

    def share(self):
        """Of a step that the products take."""
        kinds = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=kinds) as p:
            begin = time.perf_counter()
            self.training.step(*self.batch)
            whole = time.perf_counter() - begin
        return sum(e.self_cpu_time_total for e in p.key_averages()
                   if PRODUCT.search(e.key)) * 1e-6 / whole

    def peak(self):
        """Bytes that outlive a step, and the most that lives inside one."""
        kinds = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=kinds,
                                    profile_memory=True) as p:
            self.training.adam.zero_grad(set_to_none=True)
            self.training.step(*self.batch)
        live = peak = 0
        for e in sorted((e for e in p.profiler.kineto_results.events()
                         if e.name() == "[memory]"),
                        key=lambda e: e.start_ns()):
            live += e.nbytes()
            peak = max(peak, live)
        return self.training.persistent() + peak


# ---- the comparison ----

def compare(name, a, folder):
    who = {"dpc": Ours(name, a, folder), "eager": Theirs(name, a, False)}
    if not a.eager_only:
        who["compile"] = Theirs(name, a, True)
    blocks = {w: [] for w in who}
    for _ in range(a.blocks):
        for w, one in who.items():
            blocks[w].append(one.block())
    r = {"model": name, "dtype": a.dtype, "threads": a.threads}
    for w, b in blocks.items():
        whole = statistics.median(x for x, _ in b)
        product = statistics.median(y for _, y in b)
        r[w] = {"step": whole, "products": product, "rest": whole - product}
    r["dpc"]["bytes"] = who["dpc"].bytes
    r["eager"]["bytes"] = who["eager"].peak()
    return r


def show(r):
    for w in ("dpc", "eager", "compile"):
        if w in r:
            print("%-8s %-5s %-8s step %8.2f ms  products %8.2f  rest %8.2f"
                  % (r["model"], r["dtype"], w, *(1e3 * r[w][k] for k in
                                                  ("step", "products",
                                                   "rest"))))
    for w in ("eager", "compile"):
        if w in r:
            print("%-8s %-5s ratio to %-8s whole %.2f  products %.2f  "
                  "everything else %.2f" % (r["model"], r["dtype"], w, *(
                      r["dpc"][k] / r[w][k]
                      for k in ("step", "products", "rest"))))
    ours, theirs = r["dpc"]["bytes"], r["eager"]["bytes"]
    print("%-8s %-5s memory %.1f MiB of %.1f: %.2f" % (
        r["model"], r["dtype"], ours / 2**20, theirs / 2**20, ours / theirs),
        flush=True)


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch_models.SDPA = a.sdpa
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in a.models:
            results.append(compare(name, a, folder))
            show(results[-1])
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
