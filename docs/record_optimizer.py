# SPDX-License-Identifier: Apache-2.0
"""Records traces of optimizers that transformers has, and of torch's Muon, for `spillway check` (docs/check.md).

    python docs/record_optimizer.py tests/cases/optimizers

makes inputs.safetensors and a folder for each case. Wants numpy, torch, transformers and safetensors.
"""
import json
import os
import sys

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from transformers.optimization import Adafactor

STEPS = 12
TENSORS = {"matrix": [5, 7], "tall": [19, 3], "cube": [2, 3, 5], "vector": [13], "scalar": [1], "zeros": [3, 4], "tiny": [4, 3]}
CASES = {
    "adafactor": {"type": "Adafactor", "params": {}},
    "adafactor_warmup": {"type": "Adafactor", "params": {"warmup_init": True, "clip_threshold": 0.4, "decay_rate": -0.6}},
    "adafactor_lr": {"type": "Adafactor", "params": {"lr": 0.02, "relative_step": False, "scale_parameter": False, "beta1": 0.9, "weight_decay": 0.1, "eps": [1e-10, 1e-2]}},
    "muon": {"type": "Muon", "params": {"lr": 0.02, "weight_decay": 0.1}},
    "adafactor_scaled": {"type": "Adafactor", "params": {"lr": 0.05, "relative_step": False, "weight_decay": 0.02}},
}
STATES = ["momentum_buffer", "exp_avg", "exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col"]


def inputs():
    rng = np.random.default_rng(5)
    params, grads = {}, {}
    for name, shape in TENSORS.items():
        params[name] = (rng.standard_normal(shape) * (0 if name == "zeros" else 0.5)).astype(np.float32)
        size = np.exp(rng.uniform(-3, 1, size=[STEPS] + [1] * len(shape)))  # steps of different size
        g = rng.standard_normal([STEPS] + shape) * size
        if name == "vector":
            g[:3] = 0
        if name == "scalar":
            g *= 1e-6
        if name == "tiny":
            g *= 1e-8  # in some steps of a norm below the least that Muon divides by
        if name == "tall":
            g[:, 4] = 0  # a row that has no gradient
        grads[name] = g.astype(np.float32)
    return params, grads


def rate(p, t):
    if "lr" in p:
        return p["lr"]
    return min(1e-6 * t if p.get("warmup_init") else 1e-2, t**-0.5)


def run(case, params, grads, dtype):
    make = torch.optim.Muon if case["type"] == "Muon" else Adafactor
    tensors = {n: torch.nn.Parameter(torch.tensor(w, dtype=dtype)) for n, w in params.items()
               if w.ndim == 2 or make is Adafactor}
    optimizer = make(list(tensors.values()), **case["params"])
    out = {}
    for k in range(STEPS):
        for n, w in tensors.items():
            w.grad = torch.tensor(grads[n][k], dtype=dtype)
        optimizer.step()
        for n, w in tensors.items():
            out.setdefault("param." + n, []).append(w.detach().clone().numpy())
            for key in STATES:
                if key in optimizer.state[w]:
                    out.setdefault("%s.%s" % (key, n), []).append(optimizer.state[w][key].clone().numpy())
    return {key: np.stack(values) for key, values in out.items()}


def main(folder):
    params, grads = inputs()
    os.makedirs(folder, exist_ok=True)
    save_file({**{"init." + n: w for n, w in params.items()}, **{"grad." + n: g for n, g in grads.items()}},
              os.path.join(folder, "inputs.safetensors"))
    for name, case in CASES.items():
        wide, narrow = (run(case, params, grads, dtype) for dtype in (torch.float64, torch.float32))
        far = max(float(np.abs(wide[k] - narrow[k]).max() / max(np.abs(wide[k]).max(), 1e-30)) for k in wide)
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        save_file({"%s.%s" % (series, k): np.ascontiguousarray(v) for series, run_ in (("float64", wide), ("float32", narrow))
                   for k, v in run_.items()}, os.path.join(folder, name, "reference.safetensors"))
        reference = {
            "what": "%d steps; parameters and states after every step, first axis = step" % STEPS,
            "made_by": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__},
            "optimizer": case,
            "lr_used": [rate(case["params"], t) for t in range(1, STEPS + 1)],
            "tolerance": {"rel_to_max": max(10 * far, 1e-6),
                          "note": "ten times the distance of float32 from float64"},
        }
        with open(os.path.join(folder, name, "reference.json"), "w") as f:
            json.dump(reference, f, indent=1)
            f.write("\n")
        print("%s: float32 is %.2g from float64" % (name, far))


if __name__ == "__main__":
    main(sys.argv[1])
