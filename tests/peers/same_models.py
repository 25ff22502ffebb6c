#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains each small model of the recorded cases for two steps, lets transformers read what came out, and compares logits,
hidden states, loss, gradients, training and greedy text of both: same_models.py SPILLWAY CASES. SPILLWAY is the program, CASES a folder of
cases (tests/cases, or below it). Wants torch, transformers and safetensors; without them it says so and ends with 77."""
import json, os, pathlib, struct, subprocess, sys, tempfile

try:
    import torch, transformers  # noqa: F401
    from safetensors import safe_open
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

program, root = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
record = pathlib.Path(__file__).resolve().parents[2] / "docs" / "record_case.py"
failed = n = 0
for config_path in sorted(root.glob("**/config.json")):
    case, config = config_path.parent, json.loads(config_path.read_text())
    if "CausalLM" not in config.get("architectures", [""])[0] and "LMHead" not in config["architectures"][0]:
        continue
    if not (case / "model.safetensors").exists() or config["model_type"] not in (
            "gpt2 llama mistral qwen2 qwen3 gemma gemma2 gemma3_text gpt_neox opt phi phi3 bloom gptj smollm3 olmo2 granite stablelm "
            "starcoder2 cohere glm4 falcon mixtral qwen2_moe gpt_oss".split()):
        continue
    with tempfile.TemporaryDirectory() as folder:
        ids = [(7 * i * i + i) % config["vocab_size"] for i in range(400)]
        pathlib.Path(folder, "ids.bin").write_bytes(struct.pack(f"<{len(ids)}H", *ids))
        n += 1
        train = subprocess.run([program, "train", "--model", case, "--data", "ids.bin", "--steps", "2", "--seq-len", "16", "--output",
                                "run"], cwd=folder, capture_output=True, text=True)
        out = pathlib.Path(folder, "run", "model")
        same = train.returncode == 0
        if same:  # what is no parameter of the class stays out of the folder; all others are there by name
            with safe_open(case / "model.safetensors", "pt") as old, safe_open(out / "model.safetensors", "pt") as new:
                lost = [k for k in old.keys() if k not in new.keys() and "inv_freq" not in k and not k.endswith((".bias", "masked_bias"))
                        and k != "lm_head.weight"]
                same = not lost
                print(f"{case}: {'all names kept' if same else 'lost ' + ', '.join(lost)}")
        else:
            print(f"{case}: {train.stderr.strip()}")
        if same:
            exported = json.loads((out / "config.json").read_text())
            exported.pop("reorder_and_upcast_attn", None)  # the same formula, which transformers cannot compute in float64
            (out / "config.json").write_text(json.dumps(exported))
            made = subprocess.run([sys.executable, record, out, os.path.join(folder, "case"), "2", "2", "11"], capture_output=True, text=True)
            check = subprocess.run([program, "check", "case"], cwd=folder, capture_output=True, text=True)
            same = made.returncode == 0 and check.returncode == 0
            print((check.stdout if made.returncode == 0 else made.stderr).strip().splitlines()[-1])
        failed += not same
print(f"{n} models, {failed} failed")
sys.exit(failed > 0 or n == 0)
