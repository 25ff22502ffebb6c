#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters that spillway wrote, read by PEFT: the same losses as by `spillway eval`.

    python3 tests/peers/same_logits.py build/spillway BASE ADAPTER [MERGED]

BASE: a Hugging Face folder; ADAPTER: OUTPUT/adapter of a training on it; MERGED: `spillway export --merge` of it.
Random ids are cut into windows as `spillway eval` does, and the mean losses of transformers (with PEFT) and of
spillway are compared: of the base, of the base with the adapter, of the merged model. Exit status 1 where they
differ by more than rounding, 77 where a library is missing.
"""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile

TOKENS, WINDOWS = 16, 8


def ours(program, model, adapter, shard):
    command = [program, "eval", "--model", model, "--data", shard, "--seq-len", str(TOKENS), "--batch", "2", "--json"]
    done = subprocess.run(command + (["--adapter", adapter] if adapter else []), capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.decode())
    return json.loads(done.stdout)["loss"]


def main():
    try:
        import torch
        from peft import PeftModel
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        print(error)
        return 77
    program, base, adapter = sys.argv[1:4]
    merged = sys.argv[4] if len(sys.argv) > 4 else None
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    draw = random.Random(int(os.environ.get("SEED", "1")))
    ids = [draw.randrange(model.config.vocab_size) for _ in range(TOKENS * WINDOWS + 1)]
    rows = torch.tensor(ids[:-1]).view(WINDOWS, TOKENS)
    labels = torch.tensor(ids[1:]).view(WINDOWS, TOKENS)

    def theirs(m):
        with torch.no_grad():
            logits = m(input_ids=rows).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).item()

    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        shard = os.path.join(folder, "ids.bin")
        with open(shard, "wb") as out:
            out.write(struct.pack(f"<{len(ids)}H", *ids))
        pairs = [("base", theirs(model), ours(program, base, None, shard))]
        if merged:
            whole = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32).eval()
            pairs.append(("merged", theirs(whole), ours(program, merged, None, shard)))
        adapted = PeftModel.from_pretrained(model, adapter).eval()
        pairs.append(("adapted", theirs(adapted), ours(program, base, adapter, shard)))
    for name, a, b in pairs:
        good = abs(a - b) <= 1e-5 * abs(a)
        wrong += not good
        print(f"{name}: {a:.7f} by transformers, {b:.7f} by spillway{'' if good else ': DIFFERS'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
