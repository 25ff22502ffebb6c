#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small mixture of experts on a text here and with transformers, over the same windows in the same order, in fp32 with
AdamW and the load-balancing loss, which DeepSeek-V3 lacks, and compares losses and load-balancing losses step by step:
same_experts.py SPILLWAY TEXT [mixtral|qwen2_moe|qwen3_moe|gpt_oss|deepseek_v3]. Wants torch and transformers; without them it
says so and ends with 77."""
import json, os, pathlib, struct, subprocess, sys, tempfile

try:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

B, T, STEPS, SEED, LR = 4, 64, 30, 42, 1e-3
program, text = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).read_bytes()[:200000]
kinds = sys.argv[3:] or ["mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "deepseek_v3"]
common = dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=128, num_experts_per_tok=2, output_router_logits=True,
              router_aux_loss_coef=0.02, tie_word_embeddings=False, bos_token_id=0, eos_token_id=0, pad_token_id=None)
special = {"mixtral": dict(num_local_experts=8),
           "qwen2_moe": dict(num_experts=8, moe_intermediate_size=48, shared_expert_intermediate_size=96, norm_topk_prob=False),
           "qwen3_moe": dict(num_experts=8, moe_intermediate_size=48, norm_topk_prob=True, head_dim=16),
           "gpt_oss": dict(num_local_experts=8, head_dim=16, sliding_window=24,
                           rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
           "deepseek_v3": dict(n_routed_experts=8, n_shared_experts=1, moe_intermediate_size=48, first_k_dense_replace=1,
                               n_group=4, topk_group=2, routed_scaling_factor=1.5, num_key_value_heads=4, q_lora_rank=32,
                               kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
                               output_router_logits=False)}


def philox(key, counter):
    (k0, k1), (c0, c1, c2, c3), low = key, counter, 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & low, (p0 >> 32) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return c0


def place(seed, epoch, n, i):
    """Which window sample i of an epoch is (src/data/shuffle.c)."""
    half = 1
    while 1 << (2 * half) < n:
        half += 1
    mask = (1 << half) - 1
    while True:
        left, right = i >> half, i & mask
        for r in range(6):
            left, right = right, left ^ (philox((seed, 0), (right, r, epoch, 0)) & mask)
        i = left << half | right
        if i < n:
            return i


worst = 0.0
for kind in kinds:
    with tempfile.TemporaryDirectory() as work:
        torch.manual_seed(1)
        config = AutoConfig.for_model(kind, **{**common, **special[kind]})
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
        base = os.path.join(work, "base")
        model.save_pretrained(base)
        pathlib.Path(work, "ids.bin").write_bytes(struct.pack(f"<{len(text)}H", *text))
        pathlib.Path(work, "ds.json").write_text(json.dumps({
            "train_micro_batch_size_per_gpu": B, "gradient_clipping": 1.0,
            "optimizer": {"type": "AdamW", "params": {"lr": LR, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0}}}))
        run = subprocess.run([program, "train", "--model", "base", "--data", "ids.bin", "--deepspeed", "ds.json", "--steps",
                              str(STEPS), "--seq-len", str(T), "--seed", str(SEED), "--no-export", "--output", "run"],
                             cwd=work, capture_output=True, text=True)
        if run.returncode != 0:
            print(run.stderr.strip())
            sys.exit(1)
        lines = [json.loads(line) for line in pathlib.Path(work, "run", "metrics.jsonl").read_text().splitlines()]
        ids = torch.tensor(list(text))
        n = (len(text) - 1) // T
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0)
        apart = 0.0
        for step in range(STEPS):
            first = [place(SEED, 0, n, step * B + i) * T for i in range(B)]
            x = torch.stack([ids[f:f + T] for f in first])
            y = torch.stack([ids[f + 1:f + T + 1] for f in first])
            out = model(input_ids=x, **({"output_router_logits": True} if config.output_router_logits else {}))
            loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), y.flatten())
            balance = getattr(out, "aux_loss", None)
            loss = loss if balance is None else loss + common["router_aux_loss_coef"] * balance
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            pairs = [(lines[step]["loss"], loss.item())]
            pairs += [] if balance is None else [(lines[step]["router_aux_loss"], balance.item())]
            apart = max([apart] + [abs(ours - theirs) / theirs for ours, theirs in pairs])
        worst = max(worst, apart)
        print(f"{kind}: {STEPS} losses from {lines[0]['loss']:.4f} to {lines[-1]['loss']:.4f}, at most {apart:.1e} apart")
sys.exit(0 if worst <= 1e-4 else 1)
