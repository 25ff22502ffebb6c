# SPDX-License-Identifier: Apache-2.0
"""The peer of bench/gpu.sh: the same training step in PyTorch on a GPU - compiled, fused AdamW, flash attention, bf16
autocast over fp32 weights, gradients clipped to 1 - or the most layers of a GPT-2 that make two steps. One JSON line.

    python bench/train_gpu_pytorch.py --model gpt2|gpt2-xl|tinyllama-1.1b --batch B --tokens T --steps N
    python bench/train_gpu_pytorch.py --largest --width W --tokens T
"""
import argparse
import gc
import json
import statistics
import time

import torch
import transformers
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

args = argparse.ArgumentParser()
args.add_argument("--model", default="gpt2")
args.add_argument("--batch", type=int, default=1)
args.add_argument("--tokens", type=int, default=1024)
args.add_argument("--steps", type=int, default=10)
args.add_argument("--largest", action="store_true")
args.add_argument("--width", type=int, default=6144)
args = args.parse_args()
torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = False


def gpt2(layers, width, heads):
    return GPT2Config(n_layer=layers, n_embd=width, n_head=heads, n_positions=max(1024, args.tokens), resid_pdrop=0,
                      embd_pdrop=0, attn_pdrop=0)


def config():
    if args.model == "tinyllama-1.1b":
        return LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22,
                           num_attention_heads=32, num_key_value_heads=4, max_position_embeddings=2048)
    return gpt2(48, 1600, 25) if args.model == "gpt2-xl" else gpt2(12, 768, 12)


def train(shape, steps, compiled):
    """Seconds of each step, after two that do not count."""
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(shape, attn_implementation="sdpa")
    model.train()
    if args.largest:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    forward = torch.compile(model) if compiled else model
    ids = torch.randint(0, shape.vocab_size, (args.batch, args.tokens), device="cuda")
    times = []
    for i in range(steps + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = forward(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if i >= 2:
            times.append(time.perf_counter() - start)
    return times, sum(p.numel() for p in model.parameters())


def largest():
    """Doubles the layers until a step fails, then halves the gap."""
    def makes_steps(layers):
        try:
            return train(gpt2(layers, args.width, args.width // 64), 0, False)[1]
        except torch.cuda.OutOfMemoryError:
            return 0
        finally:
            gc.collect()
            torch.cuda.empty_cache()
    good, bad, parameters = 0, 1, 0
    while (n := makes_steps(bad)) > 0:
        good, bad, parameters = bad, bad * 2, n
    while bad - good > 1:
        middle = (good + bad) // 2
        n = makes_steps(middle)
        good, bad, parameters = (middle, bad, n) if n else (good, middle, parameters)
    return {"layers": good, "width": args.width, "parameters": parameters}


about = {"pytorch": torch.__version__, "transformers": transformers.__version__, "device": torch.cuda.get_device_name()}
if args.largest:
    print(json.dumps(about | largest()))
else:
    seconds, count = train(config(), args.steps, True)
    median = statistics.median(seconds)
    print(json.dumps(about | {"model": args.model, "parameters": count, "batch": args.batch, "tokens": args.tokens,
                              "step_s": round(median, 5), "min_s": round(min(seconds), 5),
                              "tokens_per_s": round(args.batch * args.tokens / median, 1),
                              "peak_bytes": torch.cuda.max_memory_allocated()}))
