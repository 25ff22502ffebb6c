#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters, next to PEFT: plain, rank-stabilised, DoRA, with biases.

    SPILLWAY_LIBRARY=build/libspillway.so PYTHONPATH=python \\
        python3 tests/peers/same_adapters.py build/spillway [STEPS]

PEFT makes adapters whose matrices are random. Both programs train them on the same batches in fp32,
and losses must agree to 1e-6 relatively. PEFT loads what Spillway exports: its loss on the next
batch is Spillway's, and so is that of the model that `spillway export --merge` writes. Exit status
1 if one differs, 77 if a package is missing.
"""

import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    import spillway
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

B, T, V, WITHIN = 3, 17, 61, 1e-6
program = sys.argv[1]
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 5

LLAMA = lambda: LlamaForCausalLM(LlamaConfig(
    vocab_size=V, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=32, attention_bias=True, mlp_bias=True))
GPT2 = lambda: GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=32, n_embd=24, n_layer=2, n_head=3,
                                          embd_pdrop=0, attn_pdrop=0, resid_pdrop=0))
CASES = [("lora", LLAMA, {"target_modules": ["q_proj", "down_proj"]}),
         ("rslora", LLAMA, {"target_modules": "all-linear", "use_rslora": True}),
         ("dora", LLAMA, {"target_modules": ["q_proj", "v_proj", "down_proj"], "use_dora": True}),
         ("dora rslora", LLAMA, {"target_modules": "all-linear", "use_dora": True, "use_rslora": True}),
         ("dora Conv1D", GPT2, {"target_modules": ["c_attn", "mlp.c_proj"], "use_dora": True,
                                "fan_in_fan_out": True}),
         ("bias all", LLAMA, {"target_modules": ["q_proj"], "bias": "all"}),
         ("bias all of GPT-2", GPT2, {"target_modules": ["c_attn"], "bias": "all", "fan_in_fan_out": True}),
         ("bias lora_only", LLAMA, {"target_modules": ["q_proj", "up_proj"], "bias": "lora_only"}),
         ("dora bias lora_only", LLAMA, {"target_modules": "all-linear", "use_dora": True,
                                         "bias": "lora_only"})]


def batch_of(step):
    return torch.randint(0, V, (B, T), generator=torch.Generator().manual_seed(100 + step))


def loss_of(model, step):
    ids = batch_of(step)
    with torch.no_grad():
        return model.eval()(input_ids=ids, labels=ids).loss.item()


def start(base, work, options):
    """A PEFT model in which nothing of the adapters is zero."""
    config = LoraConfig(r=3, lora_alpha=5, task_type="CAUSAL_LM", init_lora_weights=True, **options)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), config)
    for name, p in model.named_parameters():
        if p.requires_grad and "lora_magnitude" in name:
            p.data *= 1 + 0.1 * torch.rand(p.shape)
        elif p.requires_grad and "lora_A" not in name:
            p.data += 0.05 * torch.randn(p.shape)
    model.save_pretrained(work / "start")
    return model


def train_peft(model):
    losses = []
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0)
    for step in range(steps):
        ids = batch_of(step)
        loss = model.train()(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, sum(p.numel() for p in parameters)


def train_ours(base, work):
    config = {"train_micro_batch_size_per_gpu": B, "gradient_clipping": 1.0,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0}}}
    with spillway.initialize(base, config, adapter=work / "start", seq_len=T) as engine:
        losses = []
        for step in range(steps):
            ids = batch_of(step)
            losses.append(engine.train_batch({"input_ids": ids, "labels": ids}))
        engine.export(work / "end")
        return losses


worst, bad = 0.0, 0
for name, make, options in CASES:
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        torch.manual_seed(7)
        base = make()
        for p in base.parameters():  # biases that are not zero
            p.data += 0.02 * torch.randn(p.shape)
        base.save_pretrained(work / "base")
        model = start(work / "base", work, options)
        theirs, count = train_peft(model)
        ours = train_ours(work / "base", work)
        apart = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
        back = PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(work / "base", dtype=torch.float32), work / "end")
        subprocess.run([program, "export", str(work / "end"), "--merge", "--output", str(work / "merged"), "--model",
                        str(work / "base")], check=True, capture_output=True, text=True)
        merged = AutoModelForCausalLM.from_pretrained(work / "merged", dtype=torch.float32)
        wanted = loss_of(model, steps)
        loaded = max(abs(loss_of(m, steps) - wanted) / wanted for m in (back, merged))
        worst = max(worst, apart, loaded)
        verdict = "same" if max(apart, loaded) < WITHIN else "DIFFERENT"
        bad += verdict != "same"
        print(f"{name}: {count} trained elements, losses {apart:.1e} apart, exported and merged {loaded:.1e}: {verdict}")
print(f"{len(CASES)} kinds of adapters, at most {worst:.1e} apart")
sys.exit(1 if bad else 0)
