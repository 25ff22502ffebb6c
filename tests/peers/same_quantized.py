#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantized weights, next to bitsandbytes: int8, NF4, and NF4 with double quantization.

    SPILLWAY_LIBRARY=build/libspillway.so PYTHONPATH=python \\
        python3 tests/peers/same_quantized.py [FOLDER]

transformers quantizes a LLaMA by bitsandbytes and saves it. Spillway reads that folder. Its losses
in fp32 must agree to 1e-6 relatively with those of transformers, whose weights are what
bitsandbytes decodes. Quantized to int8 by Spillway, the model must have the same bits as that
folder. bitsandbytes rounds to fp16 before it makes int8, so drawn weights are exact in fp16.
FOLDER: a LLaMA in bf16 that is compared instead of drawn ones. Exit status 1 if a loss differs, 77
if a package is missing.
"""

import pathlib
import sys
import tempfile

try:
    import bitsandbytes.functional as bnb
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM
    import spillway
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

METHODS = [("int8", {"load_in_8bit": True}),
           ("nf4", {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}),
           ("nf4", {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True})]
KEYS = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
LORA = {"lora": {"r": 1, "target_modules": "all-linear"}}  # begins as a change of zero
B, T, BATCHES, WITHIN = 2, 17, 3, 1e-6


def draw(folder):
    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=61, hidden_size=36, intermediate_size=91, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=False))
    for p in model.parameters():  # rows of different sizes, and one of zeros
        if p.dim() == 2:
            p.data *= torch.exp(2 * torch.randn(p.shape[0], 1))
    model.model.layers[0].mlp.up_proj.weight.data[3] = 0
    model.to(torch.bfloat16).to(torch.float32).save_pretrained(folder)
    return folder


def decode(linear):
    """What bitsandbytes decodes, in fp32."""
    w = linear.weight
    if w.dtype == torch.int8:
        return bnb.int8_vectorwise_dequant(w.data, w.SCB)
    return bnb.dequantize_4bit(w.data, w.quant_state).float()


def batches(words):
    draw = torch.Generator().manual_seed(3)
    return [torch.randint(0, words, (B, T), generator=draw) for _ in range(BATCHES)]


def losses_of(folder, quantize, words):
    config = {**KEYS, "spillway": {"threads": 1, **LORA, **quantize}}
    with spillway.initialize(folder, config, seq_len=T, want_eval=True) as engine:
        sums = [engine.evaluate({"input_ids": ids, "labels": ids}) for ids in batches(words)]
        return [total / count for total, count in sums]


def decoded_losses(base, model, words):
    """Losses of transformers with the decoded weights; all others are those of the base."""
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    count = 0
    for path, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if hasattr(weight, "SCB") or hasattr(weight, "quant_state"):
            plain.get_submodule(path).weight.data = decode(module)
            count += 1
    with torch.no_grad():
        return count, [plain(input_ids=ids, labels=ids).loss.item() for ids in batches(words)]


def apart(ours, theirs):
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


def compare(base, dtype, work):
    bad = 0
    for i, (name, options) in enumerate(METHODS):
        folder = work / f"{name}-{i}-{dtype}"
        model = AutoModelForCausalLM.from_pretrained(
            base, quantization_config=BitsAndBytesConfig(**options), dtype=dtype, device_map="cpu")
        model.save_pretrained(folder)
        words = model.config.vocab_size
        count, theirs = decoded_losses(base, model, words)
        read = losses_of(folder, {}, words)
        good = count > 0 and apart(read, theirs) < WITHIN
        text = f"{apart(read, theirs):.1e} apart as read"
        if name == "int8":
            made = losses_of(base, {"quantize": name}, words)
            good &= made == read
            text += ", the same bits as quantized here" if made == read else ", OTHER BITS as quantized here"
        bad += not good
        print(f"{options}, {dtype}: {count} matrices, losses {text}: {'same' if good else 'DIFFERENT'}")
    return bad


with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    failed = 0
    base = sys.argv[1] if len(sys.argv) > 1 else draw(work / "base")
    for dtype in (torch.float32, torch.bfloat16):
        failed += compare(base, dtype, work)
    sys.exit(1 if failed else 0)
