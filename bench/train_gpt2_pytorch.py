# SPDX-License-Identifier: Apache-2.0
"""Tokens per second of the same training step as bench/train_gpt2.c, in PyTorch: GPT-2 (124M) of transformers, or the
model of a config.json, or t5-small or vit-base, AdamW, no dropout. bf16: autocast over fp32 weights. Gradients are clipped
to the norm of "clip=", by default 1; 0 = not clipped.

    python bench/train_gpt2_pytorch.py [f32|bf16] [B] [T] [steps] [clip=1] [compile] [FOLDER|t5-small|vit-base]
"""
import os
import resource
import statistics
import sys
import time

import torch
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForImageClassification, AutoModelForMaskedLM,
                          AutoModelForSeq2SeqLM, GPT2Config, T5Config, ViTConfig)

dtype, batch, tokens, steps = (sys.argv[1:5] + ["f32", "4", "64", "5"][len(sys.argv) - 1:])[:4]
batch, tokens, steps = int(batch), int(tokens), int(steps)
clip = next((float(a[5:]) for a in sys.argv if a.startswith("clip=")), 1.0)
torch.set_num_threads(2)
torch.manual_seed(1)
folder = sys.argv[-1] if os.path.isdir(sys.argv[-1]) else None
config = AutoConfig.from_pretrained(folder) if folder else {
    "t5-small": T5Config(dropout_rate=0, decoder_start_token_id=0),
    "vit-base": ViTConfig(),
}.get(sys.argv[-1], GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
masked = (config.architectures or [""])[0].endswith("MaskedLM")
kinds = {"t5": AutoModelForSeq2SeqLM, "vit": AutoModelForImageClassification}
model = kinds.get(config.model_type, AutoModelForMaskedLM if masked else AutoModelForCausalLM).from_config(config)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
forward = torch.compile(model) if "compile" in sys.argv else model
if config.model_type == "vit":
    inputs = {"pixel_values": torch.randn(batch, 3, 224, 224), "labels": torch.randint(0, 2, (batch,))}
else:
    ids = torch.randint(0, config.vocab_size, (batch, tokens))
    inputs = {"input_ids": ids, "labels": ids.masked_fill(torch.rand(ids.shape) > 0.15, -100) if masked else ids}


def step():
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
        loss = forward(**inputs).loss
    loss.backward()
    if clip > 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


for _ in range(2):
    step()
times = []
for _ in range(steps):
    start = time.perf_counter()
    step()
    times.append(time.perf_counter() - start)
median = statistics.median(times)
print(f"pytorch {torch.__version__} {dtype} B={batch} T={tokens}: {median:.4f} s a step, "
      f"{batch * tokens / median:.1f} tokens/s, peak RSS "
      f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9:.2f} GB")
