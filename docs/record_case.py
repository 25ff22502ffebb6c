#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records a case for `spillway check`: record_case.py MODEL CASE [STEPS B T [SMOOTHING]]. MODEL is a Hugging Face folder of a
language model, causal or of masked tokens, or of one that finds answers or classifies images, CASE the folder to write. Models of
masked tokens and answers read rows with padding. Causal ones also continue five tokens greedily. If MODEL has a folder `adapter`
that PEFT reads, that is what trains. Tolerances are ten times the distance to the same run in float64. Gradients and weights are
recorded if the file has them under their name in memory."""
import copy, json, os, sys
import torch, transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers.trainer_pt_utils import LabelSmoother

steps, B, T = map(int, sys.argv[3:6] or (5, 2, 16))
smoothing = float(sys.argv[6]) if len(sys.argv) > 6 else 0.0
config = transformers.AutoConfig.from_pretrained(sys.argv[1])
kind = getattr(transformers, config.architectures[0])
# transformers' eager Falcon adds its slopes twice
attention = "sdpa" if getattr(config, "alibi", False) else "eager"
model = kind.from_pretrained(sys.argv[1], dtype=torch.float32, attn_implementation=attention)
if hasattr(model, "set_experts_implementation"):
    model.set_experts_implementation("eager")  # others do not take float64
adapter = os.path.join(sys.argv[1], "adapter")
adapted = os.path.isdir(adapter)
model.eval().save_pretrained(sys.argv[2])
if adapted:
    import peft
    model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True).eval()
    model.peft_config["default"].base_model_name_or_path = os.path.basename(sys.argv[2])
    model.save_pretrained(os.path.join(sys.argv[2], "adapter"))
    os.remove(os.path.join(sys.argv[2], "adapter", "README.md"))
random = torch.Generator().manual_seed(0)
ids = torch.randint(getattr(config, "vocab_size", 1), (1 + steps, B, T), generator=random)
given = {"input_ids": ids, "labels": ids}
if kind.__name__.endswith("ImageClassification"):
    size = (config.num_channels, config.image_size, config.image_size)
    given = {"pixel_values": torch.randn((1 + steps, B, *size), generator=random),
             "labels": torch.randint(config.num_labels, (1 + steps, B), generator=random)}
elif not kind.__name__.endswith(("CausalLM", "LMHeadModel")):
    given["attention_mask"] = (torch.arange(T) < T - torch.arange(B)[:, None] * (T // 4)).long().expand_as(ids).clone()
    ids[given["attention_mask"] == 0] = config.pad_token_id
if kind.__name__.endswith("QuestionAnswering"):
    del given["labels"]
    given |= {k: torch.randint(T, (1 + steps, B), generator=random) for k in ("start_positions", "end_positions")}
train = {"optimizer": "AdamW", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-5, "weight_decay": 0.1, "decay_on": "all",
         "clip": 1.0, "steps": steps, "schedule": {"kind": "constant"}}  # this eps: Adam does not follow rounding noise

def loss_of(out, batch):
    cross_entropy = torch.nn.functional.cross_entropy
    if "labels" not in batch:
        return sum(cross_entropy(out[f"{k}_logits"], batch[f"{k}_positions"]) for k in ("start", "end")) / 2
    if "attention_mask" in batch or "pixel_values" in batch:
        return cross_entropy(out.logits.flatten(0, -2), batch["labels"].flatten())
    if smoothing:
        return LabelSmoother(smoothing)({"logits": out.logits}, batch["labels"], shift_labels=True)
    return cross_entropy(out.logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())

def forward(model, i, **more):
    batch = {k: v[i] for k, v in given.items()}
    out = model(**{k: v for k, v in batch.items() if k in ("input_ids", "attention_mask", "pixel_values")}, **more)
    return out, loss_of(out, batch)

def params_of(model):  # by their names in files
    name = lambda n: n.replace(".lora_magnitude_vector.default.weight", ".lora_magnitude_vector").replace(".default", "")
    return {name(n): p for n, p in model.named_parameters() if p.requires_grad}

def run(model):
    (out, loss), params = forward(model, 0, output_hidden_states=True), params_of(model)
    r = {f"output.{k}": v for k, v in out.items() if k.endswith("logits")} | {"output.loss": loss}
    loss.backward()
    r |= {f"output.hidden.{i}": h for i, h in enumerate(out.hidden_states)} | {f"grad.{n}": torch.zeros_like(p) if p.grad is None else p.grad for n, p in params.items()}
    optimizer, losses, norms = torch.optim.AdamW(params.values(), train["lr"], eps=train["eps"], weight_decay=0.1), [], []
    for i in range(1, 1 + steps):
        optimizer.zero_grad()
        loss = forward(model, i)[1]
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(params.values(), train["clip"]).item())
        optimizer.step()
    r |= {"train.loss": torch.tensor(losses, dtype=torch.float64), "train.grad_norm": torch.tensor(norms, dtype=torch.float64)}
    return {k: v.detach().clone() for k, v in (r | {f"after.{n}": p for n, p in params.items()}).items()}

@torch.no_grad()
def continue_greedily(model, n=6):
    row, logits = ids[0, :1, :5], []
    for _ in range(n):
        logits.append(model(row, use_cache=False).logits[:, -1])
        row = torch.cat([row, logits[-1].argmax(-1, keepdim=True)], 1)
    return {"input.prompt": row[0, :5].clone(), "output.greedy": row[0, 5:].clone(), "output.step_logits": torch.cat(logits)}

start = {f"after.{n}": p.detach().clone().double() for n, p in params_of(model).items()}
merged = {}
if adapted:  # what training starts from
    whole = copy.deepcopy(model).merge_and_unload()
    merged = {f"merged.{n}": p.detach().clone() for n, p in whole.named_parameters()}
text = continue_greedily(model) if kind.__name__.endswith(("CausalLM", "LMHeadModel")) and not adapted else {}
exact, single = run(copy.deepcopy(model).double()), run(model)
top = max(v.abs().max() for k, v in exact.items() if k.startswith("grad."))

def worst(prefix, scale=lambda v: 1.0, suffix=""):
    return max([1e-6] + [10 * float(((single[k] - v).abs() / scale(v)).max()) for k, v in exact.items()
                         if k.startswith(prefix) and k.endswith(suffix)])

apart = sum(((single[k] - exact[k]) ** 2).sum() for k in start)
moved = sum(((exact[k] - v) ** 2).sum() for k, v in start.items())
tolerance = {"logits_abs": worst("output.", suffix="logits"), "hidden_abs": worst("output.hidden."), "after_abs": worst("after."),
             "after_update_rel": max(1e-6, 10 * float(apart / moved) ** 0.5),
             "loss_rel": worst("output.loss", torch.abs), "grad_rel_to_max": worst("grad.", lambda v: max(v.abs().max(), top / 1000)),
             "train_loss_rel": worst("train.loss", torch.abs), "train_grad_norm_rel": worst("train.grad_norm", torch.abs)}
single |= {f"input.{k}": v[0].clone() for k, v in given.items()} | {f"train.{k}": v[1:].clone() for k, v in given.items()}
with safe_open(os.path.join(sys.argv[2], "model.safetensors"), "pt") as saved:
    unknown = {n for n in params_of(model) if n not in saved.keys() and not adapted}
single = {k: v for k, v in single.items() if not k.startswith(("grad.", "after.")) or k.split(".", 1)[1] not in unknown}
single |= merged
single |= text
single["train.lr"] = torch.full((steps,), train["lr"], dtype=torch.float64)
save_file(single, os.path.join(sys.argv[2], "reference.safetensors"))
with open(os.path.join(sys.argv[2], "reference.json"), "w") as f:
    json.dump({"what": f"{os.path.basename(sys.argv[1])}, random tokens", "train": train, "tolerance": tolerance} |
              ({"label_smoothing": smoothing} if smoothing else {}), f, indent=1)
