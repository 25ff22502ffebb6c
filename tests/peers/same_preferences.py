#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same small LLaMA on the same pairs here and with TRL's DPOTrainer, and compares losses and rewards step by step:
same_preferences.py SPILLWAY TOKENIZER [STEPS]. TOKENIZER is a folder with tokenizer.json. Wants torch, transformers, trl and
datasets; without them it says so and ends with 77."""
import json, os, pathlib, random, subprocess, sys, tempfile, time

try:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import DPOConfig, DPOTrainer
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

PAIRS, T = 16, 64
program, tokenizer_folder = os.path.abspath(sys.argv[1]), sys.argv[2]
steps = int(sys.argv[3]) if len(sys.argv) > 3 else 10
words = "the cat dog sat ran on mat hill red blue big small house tree river over under and slowly".split()
draw = random.Random(3)


def text(n):
    return " ".join(draw.choice(words) for _ in range(n))


# pieces end in a space, so that a text is tokenised as its parts are
pairs = [{"prompt": text(draw.randint(3, 9)), "chosen": " " + text(draw.randint(2, 8)), "rejected": " " + text(draw.randint(2, 8))}
         for _ in range(PAIRS)]
# TRL's sigmoid loss has no smoothing; recorded cases check ours (engine/tests/preference_test.c)
cases = [("sigmoid", {}, {}),
         ("ipo", {"loss_type": "ipo"}, {"--set": 'spillway.preference={"loss_type":"ipo","log_probs":"mean"}'})]
worst = 0
with tempfile.TemporaryDirectory() as work:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(tokenizer_folder, "tokenizer.json"))
    names = [t for t in tokenizer.added_tokens_encoder] or ["<|endoftext|>"]
    last = next((n for n in names if "end_of_text" in n or "endoftext" in n or n == "</s>"), names[-1])
    tokenizer.eos_token = tokenizer.pad_token = last
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=128, eos_token_id=tokenizer.eos_token_id,
                         pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.eos_token_id, tie_word_embeddings=False)
    base = os.path.join(work, "base")
    LlamaForCausalLM(config).save_pretrained(base)
    tokenizer.save_pretrained(base)
    pathlib.Path(work, "pairs.jsonl").write_text("".join(json.dumps(p) + "\n" for p in pairs))
    pathlib.Path(work, "ds.json").write_text(json.dumps({
        "train_micro_batch_size_per_gpu": PAIRS, "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0}}}))
    for name, theirs, flags in cases:
        out = os.path.join(work, "run-" + name.replace(", ", "-"))
        run = subprocess.run([program, "train", "--model", "base", "--task", "dpo", "--data", "pairs.jsonl", "--deepspeed", "ds.json",
                              "--chat-template", "none", "--seq-len", str(T), "--steps", str(steps), "--no-export", "--output", out,
                              *sum(([k, v] for k, v in flags.items()), [])], cwd=work, capture_output=True, text=True)
        if run.returncode != 0:
            print(run.stderr.strip())
            sys.exit(1)
        lines = [json.loads(line) for line in pathlib.Path(out, "metrics.jsonl").read_text().splitlines()]
        args = DPOConfig(output_dir=os.path.join(work, "trl"), per_device_train_batch_size=PAIRS, max_steps=steps, learning_rate=1e-3,
                         lr_scheduler_type="constant", warmup_steps=0, weight_decay=0.0, max_grad_norm=1.0, logging_steps=1, beta=0.1,
                         max_length=T, bf16=False, fp16=False, use_cpu=True, report_to=[], save_strategy="no", seed=1,
                         disable_dropout=True, gradient_checkpointing=False, precompute_ref_log_probs=True, **theirs)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        trainer = DPOTrainer(model=model, args=args, train_dataset=Dataset.from_list(pairs), processing_class=tokenizer)
        trainer.train()
        logs = [log for log in trainer.state.log_history if "rewards/margins" in log]
        for ours, log in zip(lines, logs):
            apart = abs(ours["loss"] - log["loss"]) / abs(log["loss"])
            worst = max(worst, apart)
            print(f"{name} step {ours['step']}: loss {ours['loss']:.8f} and {log['loss']:.8f}, {apart:.1e} apart; margins "
                  f"{ours['rewards/margins']:.6f} and {log['rewards/margins']:.6f}, accuracies {ours['rewards/accuracies']} and "
                  f"{log['rewards/accuracies']}")
        assert len(lines) == len(logs) == steps
print(f"losses differ by at most {worst:.1e}")
sys.exit(0 if worst < 1e-5 else 1)
