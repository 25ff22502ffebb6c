#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records int8 weights of bitsandbytes, for src/hf/tests/int8_test.c.

    python3 tests/peers/record_int8.py tests/cases/int8

Each tensor X has X.value (fp16 or bf16), and what bitsandbytes makes of it: X.weight (codes), X.SCB
(scales of rows) and X.decoded. Rows have very different sizes, and values halfway between codes; one is
zeros.
"""

import pathlib
import sys

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import save_file

torch.manual_seed(1)
out = {}
for name, rows, columns, dtype in [("fp16", 13, 37, torch.float16), ("bf16", 9, 130, torch.bfloat16)]:
    x = torch.randn(rows, columns) * torch.exp(2 * torch.randn(rows, 1))
    x[:, 1] = x.abs().amax(dim=1) / 2  # halfway between codes, but for the rounding of the scale
    x[2] = 0
    x[3] = (torch.arange(columns) % 255 - 127) / 2
    x[3, 0] = 127
    x = x.to(dtype)
    codes, scales, _ = bnb.int8_vectorwise_quant(x.half())
    out |= {f"{name}.value": x, f"{name}.weight": codes, f"{name}.SCB": scales,
            f"{name}.decoded": bnb.int8_vectorwise_dequant(codes, scales)}
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
save_file(out, folder / "model.safetensors")
