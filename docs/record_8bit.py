# SPDX-License-Identifier: Apache-2.0
"""Records traces of Adam and AdamW with moments of 8 bits, for `spillway check` (docs/check.md).

    python docs/record_8bit.py tests/cases/optimizers_8bit

makes inputs.safetensors and a folder for each case. Wants numpy and safetensors. The arithmetic is written here from
Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization", in fp32: moments are made of their codes, moved and used
as Adam has them, and become codes again. One thing is Spillway's: a second moment above 0 never becomes 0.
"""
import json
import os
import sys

import numpy as np
from safetensors.numpy import save_file

STEPS, RUN = 10, 256
TENSORS = {"matrix": [19, 29], "vector": [256], "short": [40], "zeros": [3, 100]}
CASES = {
    "adamw8bit": {"type": "AdamW8bit", "params": {"lr": 0.02, "weight_decay": 0.1, "min_8bit_size": 100}},
    "adam8bit": {"type": "Adam8bit", "params": {"lr": 0.005, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.05, "adam_w_mode": False,
                                                "min_8bit_size": 0}},
}
f32 = np.float32


def dynamic_map(signed):
    """256 factors in ascending order: seven decades, each of twice as many values as the one below; 0 and 1."""
    values = [0.0, 1.0]
    for i in range(7):
        bounds = np.linspace(0.1, 1, 2 ** (i if signed else i + 1) + 1)
        means = (bounds[:-1] + bounds[1:]) / 2 * 10.0 ** (i - 6)
        values += list(means) + (list(-means) if signed else [])
    return np.sort(np.array(values)).astype(f32)


MAPS = {True: dynamic_map(True), False: dynamic_map(False)}


def encode(x, signed):
    """Codes and scales of a flat tensor."""
    table, codes, scales = MAPS[signed], np.zeros(x.size, np.uint8), []
    for first in range(0, x.size, RUN):
        run = x[first : first + RUN]
        scale = np.abs(run).max()
        part = run / scale if scale > 0 else np.zeros_like(run)
        nearest = np.searchsorted((table[:-1] + table[1:]) * f32(0.5), part)  # middles in fp32
        if not signed:
            nearest = np.where((nearest == 0) & (part > 0), 1, nearest)
        codes[first : first + RUN] = nearest
        scales.append(scale)
    return codes, np.array(scales, f32)


def decode(codes, scales, signed):
    return MAPS[signed][codes] * np.repeat(scales, RUN)[: codes.size]


def run(case, params, grads):
    p = {"betas": [0.9, 0.999], "eps": 1e-8, "adam_w_mode": True, **case["params"]}
    b1, b2 = p["betas"]
    out = {}
    for name, start in params.items():
        w = start.reshape(-1).copy()
        m, v = np.zeros_like(w), np.zeros_like(w)
        coded = w.size >= p["min_8bit_size"]
        for t in range(1, STEPS + 1):
            g = grads[name][t - 1].reshape(-1)
            if p["adam_w_mode"]:
                w = w * f32(1 - p["lr"] * p["weight_decay"])
            else:
                g = g + f32(p["weight_decay"]) * w
            m = f32(b1) * m + f32(1 - b1) * g
            v = f32(b2) * v + f32(1 - b2) * g * g
            w = w - f32(p["lr"] / (1 - b1**t)) * (m / (np.sqrt(v / f32(1 - b2**t)) + f32(p["eps"])))
            if coded:
                m, v = decode(*encode(m, True), True), decode(*encode(v, False), False)
            for key, x in (("param", w), ("exp_avg", m), ("exp_avg_sq", v)):
                out.setdefault("float32.%s.%s" % (key, name), []).append(x.reshape(start.shape).copy())
    return {key: np.stack(values) for key, values in out.items()}


def inputs():
    rng = np.random.default_rng(8)
    params, grads = {}, {}
    for name, shape in TENSORS.items():
        params[name] = (rng.standard_normal(shape) * (0 if name == "zeros" else 0.5)).astype(f32)
        sizes = np.exp(rng.uniform(-9, 1, size=shape))  # of very different size within a run
        g = rng.standard_normal([STEPS] + shape) * sizes
        if name == "vector":
            g[:3] = 0
        if name == "zeros":
            g[:, 0] = 0
        grads[name] = g.astype(f32)
    return params, grads


def main(folder):
    params, grads = inputs()
    os.makedirs(folder, exist_ok=True)
    save_file({**{"init." + n: w for n, w in params.items()}, **{"grad." + n: g for n, g in grads.items()}},
              os.path.join(folder, "inputs.safetensors"))
    for name, case in CASES.items():
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        save_file(run(case, params, grads), os.path.join(folder, name, "reference.safetensors"))
        reference = {
            "what": "%d steps; parameters and moments (what their codes stand for) after every step, first axis = step" % STEPS,
            "made_by": {"numpy": np.__version__},
            "optimizer": case,
            "lr_used": [case["params"]["lr"]] * STEPS,
            "tolerance": {"rel_to_max": 1e-6, "note": "no code may differ: that would be 1e-3 and more of the large ones"},
        }
        with open(os.path.join(folder, name, "reference.json"), "w") as f:
            json.dump(reference, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
