# SPDX-License-Identifier: Apache-2.0
"""Seconds and memory of a step of DPO (fp32, reference computed before), here and in TRL's DPOTrainer, on the same small LLaMA
and the same pairs. The programs run in turns. Prints the median step of each round, and the highest resident memory.

    python bench/dpo.py SPILLWAY TOKENIZER [PAIRS] [T] [STEPS] [ROUNDS]

TOKENIZER is a folder with tokenizer.json. Wants torch, transformers, trl and datasets."""
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

THREADS = "2"


def numbers():
    return [int(x) for x in (sys.argv[3:7] + ["4", "128", "4", "2"][len(sys.argv[3:7]):])]


def theirs(work):
    """Runs TRL alone in this process."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
    from trl import DPOConfig, DPOTrainer
    batch, tokens, steps, _ = numbers()
    torch.set_num_threads(int(THREADS))
    base = os.path.join(work, "base")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(base)
    times = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.began = time.perf_counter()

        def on_step_end(self, *_, **__):
            times.append(time.perf_counter() - self.began)

    args = DPOConfig(output_dir=os.path.join(work, "trl"), per_device_train_batch_size=batch, max_steps=steps, learning_rate=1e-4,
                     max_length=tokens, bf16=False, fp16=False, use_cpu=True, report_to=[], save_strategy="no", disable_dropout=True,
                     gradient_checkpointing=False, precompute_ref_log_probs=True, lr_scheduler_type="constant")
    pairs = [json.loads(line) for line in pathlib.Path(work, "pairs.jsonl").read_text().splitlines()]
    DPOTrainer(model=AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), args=args, train_dataset=Dataset.from_list(pairs),
               processing_class=tokenizer, callbacks=[Clock()]).train()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(f"measured {statistics.median(times[1:]):.4f} {peak:.3f}")


def prepare(work):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    batch, tokens, steps, _ = numbers()
    words = "the cat dog sat ran on mat hill red blue big small house tree river over under and slowly".split()
    draw = random.Random(3)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(sys.argv[2], "tokenizer.json"))
    tokenizer.eos_token = tokenizer.pad_token = list(tokenizer.added_tokens_encoder)[-1]
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
                         max_position_embeddings=1024, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
                         bos_token_id=tokenizer.eos_token_id, tie_word_embeddings=False)
    base = os.path.join(work, "base")
    LlamaForCausalLM(config).save_pretrained(base)
    tokenizer.save_pretrained(base)

    def text(n):
        return " ".join(draw.choice(words) for _ in range(n))

    pathlib.Path(work, "pairs.jsonl").write_text("".join(json.dumps(
        {"prompt": text(tokens // 2), "chosen": " " + text(tokens), "rejected": " " + text(tokens)}) + "\n" for _ in range(batch * steps)))
    pathlib.Path(work, "ds.json").write_text(json.dumps({
        "train_micro_batch_size_per_gpu": batch, "gradient_clipping": 1.0, "spillway": {"threads": int(THREADS)},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0}}}))


def ours(work, i):
    _, tokens, steps, _ = numbers()
    out = os.path.join(work, f"run{i}")
    command = [os.path.abspath(sys.argv[1]), "train", "--model", "base", "--task", "dpo", "--data", "pairs.jsonl", "--deepspeed", "ds.json",
               "--chat-template", "none", "--seq-len", str(tokens), "--steps", str(steps), "--no-export", "--quiet", "--output", out]
    os.chdir(work)
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status, used = os.wait4(pid, 0)
    assert status == 0
    lines = [json.loads(line) for line in pathlib.Path(out, "metrics.jsonl").read_text().splitlines()]
    return statistics.median(line["step_ms"] / 1e3 for line in lines[1:]), used.ru_maxrss * 1024 / 1e9


if os.environ.get("SPILLWAY_BENCH_DPO"):
    theirs(os.environ["SPILLWAY_BENCH_DPO"])
    sys.exit(0)
sys.argv[1:3] = [os.path.abspath(path) for path in sys.argv[1:3]]
script = os.path.abspath(__file__)
with tempfile.TemporaryDirectory() as folder:
    prepare(folder)
    for turn in range(numbers()[3]):
        seconds, peak = ours(folder, turn)
        print(f"spillway: {seconds:.4f} s a step, peak RSS {peak:.3f} GB", flush=True)
        said = subprocess.run([sys.executable, script, *sys.argv[1:]], capture_output=True, text=True,
                              env={**os.environ, "SPILLWAY_BENCH_DPO": folder, "OMP_NUM_THREADS": THREADS})
        line = [x for x in said.stdout.splitlines() if x.startswith("measured")]
        print(f"trl: {line[0].split()[1]} s a step, peak RSS {line[0].split()[2]} GB" if line else said.stderr[-2000:], flush=True)
