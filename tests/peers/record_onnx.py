#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers as ONNX files, by both exporters of PyTorch, that Spillway trains.

    python3 tests/peers/record_onnx.py make FOLDER [MODEL..]
    python3 tests/peers/record_onnx.py check SPILLWAY FOLDER [NAME..]
    python3 tests/peers/record_onnx.py case tests/cases/onnx

make writes FOLDER/MODEL, a Hugging Face folder, and FOLDER/MODEL-EXPORTER-OPSET/model.onnx with its
config.json, for the older exporter (torchscript) at opsets 17, 18 and 20, and the newer one (dynamo)
at 18, 20 and 21. check compares each file with its folder: the same logits within 1e-4 of ONNX Runtime's
(spillway export --verify), ten losses of AdamW within 1e-4, the same weights after them to the byte
on two ranks at stage 3 with everything on disk in tiles, adapters by names of nodes, and the same file
out as in. case makes the two small cases that the tests have. Exit status 1 if one is not, 77 if a package is missing.
"""

import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import warnings
import zlib

OPSETS = {"torchscript": (17, 18, 20), "dynamo": (18, 20, 21)}
TEXT = dict(vocab_size=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
BERT = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
            max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **TEXT)
MODELS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", "causal",
             dict(n_embd=16, n_layer=2, n_head=2, n_positions=32, vocab_size=64, bos_token_id=1, eos_token_id=2,
                  embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)),
    "bert": ("BertForSequenceClassification", "BertConfig", "classify", dict(BERT, num_labels=2)),
    "bert-masked": ("BertForMaskedLM", "BertConfig", "masked", BERT),
    "roberta": ("RobertaForSequenceClassification", "RobertaConfig", "classify", dict(BERT, num_labels=2, type_vocab_size=1)),
    "distilbert": ("DistilBertForSequenceClassification", "DistilBertConfig", "classify",
                   dict(dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=40, dropout=0.0,
                        attention_dropout=0.0, seq_classif_dropout=0.0, num_labels=2, **TEXT)),
    "llama": ("LlamaForCausalLM", "LlamaConfig", "causal",
              dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                   intermediate_size=24, max_position_embeddings=32, vocab_size=64, tie_word_embeddings=False)),
    "vit": ("ViTForImageClassification", "ViTConfig", "images",
            dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=16, patch_size=4,
                 hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2)),
    "albert-masked": ("AlbertForMaskedLM", "AlbertConfig", "masked",
                      dict(BERT, embedding_size=8, num_hidden_groups=1, classifier_dropout_prob=0.0)),
    "albert": ("AlbertForSequenceClassification", "AlbertConfig", "classify",
               dict(BERT, embedding_size=8, num_hidden_groups=1, classifier_dropout_prob=0.0, num_labels=2)),
}
WORDS = ["good", "bad", "warm", "cold", "long", "short", "day", "night", "book", "film", "was", "is", "the", "a", "very", "not"]


# ---- models ----

def make_model(name):
    import torch
    import transformers
    kind, config, _, settings = MODELS[name]
    torch.manual_seed(1)
    model = getattr(transformers, kind)(getattr(transformers, config)(**settings)).eval()
    with torch.no_grad():  # the older exporter merges equal weights, such as biases of zero
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return model


def inputs_of(name, model):
    import torch
    if MODELS[name][2] == "images":
        return {"pixel_values": torch.randn(2, 3, model.config.image_size, model.config.image_size)}
    ids = torch.randint(4, model.config.vocab_size, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    ids[1, 6:] = model.config.pad_token_id or 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    return inputs


def export(name, model, exporter, opset, path):
    import torch

    class Logits(type(model)):  # with the names of modules as they are
        def forward(self, *given):
            kwargs = dict(zip(names, given))
            if "causal" in MODELS[name][2]:
                kwargs["use_cache"] = False
            return super().forward(**kwargs, return_dict=True).logits

    inputs = inputs_of(name, model)
    names = list(inputs)
    model.__class__ = Logits
    axes = {n: {0: "batch"} if n == "pixel_values" else {0: "batch", 1: "sequence"} for n in names}
    how = {"dynamic_axes": dict(axes, logits={0: "batch"}), "dynamo": False}
    if exporter == "dynamo":
        dims = [{d: torch.export.Dim.DYNAMIC for d in axes[n]} for n in names]
        how = {"dynamo": True, "dynamic_shapes": (tuple(dims),), "external_data": False, "verbose": False}
    try:
        torch.onnx.export(model, tuple(inputs.values()), str(path), input_names=names, output_names=["logits"],
                          opset_version=opset, **how)
    finally:
        model.__class__ = Logits.__bases__[0]


def make(folder, wanted):
    warnings.simplefilter("ignore")
    for name in wanted or MODELS:
        model = make_model(name)
        model.save_pretrained(folder / name)
        for exporter, opsets in OPSETS.items():
            for opset in opsets:
                to = folder / f"{name}-{exporter}-{opset}"
                to.mkdir(parents=True, exist_ok=True)
                try:
                    export(name, model, exporter, opset, to / "model.onnx")
                    shutil.copy(folder / name / "config.json", to)
                    print(f"{to}/model.onnx", flush=True)
                except Exception as error:  # of the exporter
                    shutil.rmtree(to)
                    print(f"{to.name}: not exported: {type(error).__name__}: {str(error)[:200]}", flush=True)


# ---- cases ----

CASES = {"gpt2": ("gpt2", "torchscript", 17, dict(n_embd=8, n_positions=16, vocab_size=31, n_inner=12)),
         "albert": ("albert-masked", "dynamo", 18, dict(hidden_size=8, embedding_size=6, intermediate_size=12,
                                                          max_position_embeddings=16, vocab_size=31))}


def slim(path):
    """Leaves only the names of modules of what the newer exporter says about each node."""
    import onnx
    model = onnx.load(path)
    for owner in [model, model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output]:
        for i in reversed(range(len(owner.metadata_props))):
            if owner.metadata_props[i].key != "pkg.torch.onnx.name_scopes":
                del owner.metadata_props[i]
    del model.graph.value_info[:]
    onnx.save(model, path)


def named_in(path, model):
    """Recorded gradients of tied weights, by the name that the file has for them."""
    import onnx
    there = {i.name for i in onnx.load(path).graph.initializer}
    names = {}
    for name, weight in model.state_dict(keep_vars=True).items():
        names.setdefault(weight.data_ptr(), []).append(name)
    return {f"grad.{one}": f"grad.{other}" for tied in names.values() for one in tied for other in tied
            if one not in there and other in there}


def make_cases(root):
    from safetensors import safe_open
    from safetensors.numpy import save_file
    for case, (name, exporter, opset, smaller) in CASES.items():
        MODELS[name][3].update(smaller)
        to = root / case
        shutil.rmtree(to, ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder:
            make_model(name).save_pretrained(folder)
            subprocess.run([sys.executable, "docs/record_case.py", folder, to, "10", "2", "11"], check=True)
        import transformers
        model = getattr(transformers, MODELS[name][0]).from_pretrained(to).eval()
        export(name, model, exporter, opset, to / "model.onnx")
        slim(to / "model.onnx")
        names = named_in(to / "model.onnx", model)
        with safe_open(to / "reference.safetensors", "np") as file:
            kept = {names.get(k, k): file.get_tensor(k) for k in file.keys() if not k.startswith(("after.", "output.hidden."))}
        save_file(kept, to / "reference.safetensors")
        for left in ("model.safetensors", "generation_config.json"):
            (to / left).unlink(missing_ok=True)


# ---- data ----

def write_png(path, draw, light):
    rows = b"".join(b"\0" + bytes(min(255, draw.randrange(120) + light) for _ in range(48)) for _ in range(16))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_data(work):
    draw = random.Random(1)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + WORDS
    (work / "words").mkdir()
    (work / "words" / "vocab.txt").write_text("\n".join(words) + "\n")
    (work / "words" / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}))
    lines = [" ".join(draw.choice(WORDS) for _ in range(draw.randrange(4, 12))) for _ in range(96)]
    (work / "text.txt").write_text("\n".join(lines) + "\n")
    rows = [f"{line},{'yes' if 'good' in line else 'no'}" for line in lines]
    (work / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    for label, light in (("dark", 0), ("light", 120)):
        (work / "pictures" / label).mkdir(parents=True)
        for i in range(24):
            write_png(work / "pictures" / label / f"{i}.png", draw, light)


def data_of(task, work):
    return {"causal": ["--data", work / "text.txt", "--seq-len", "16"],
            "masked": ["--data", work / "text.txt", "--seq-len", "16", "--tokenizer", work / "words", "--task", "masked"],
            "images": ["--data", work / "pictures", "--task", "images"]}.get(
        task, ["--data", work / "rows.csv", "--seq-len", "16", "--tokenizer", work / "words", "--task", task])


# ---- checks ----

def run(*words, fails=False):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails, f"{' '.join(map(str, words[1:4]))}: {done.stderr.strip()[-900:]}"
    return done.stdout


def train(program, model, task, work, output, *more):
    run(program, "train", "--model", model, *data_of(task, work), "--steps", "10", "--batch-size", "2",
        "--accumulate", "1" if "--ranks" in more else "2", "--lr", "0.002", "--output", output, "--threads", "1", *more)
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


SPREAD = ["--ranks", "2", "--set", "zero_optimization.stage=3", "--set", "zero_optimization.offload_optimizer.device=nvme",
          "--set", "zero_optimization.offload_param.device=nvme", "--set", "spillway.tile_bytes=4096"]


def check_one(program, folder, name):
    path = folder / name / "model.onnx"
    model = next(m for m in sorted(MODELS, key=len, reverse=True) if name.startswith(m + "-"))
    task = MODELS[model][2]
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        write_data(work)
        run(program, "export", path, "--onnx", work / "same", "--verify")
        assert (work / "same" / "model.onnx").read_bytes() == path.read_bytes(), "the file differs after export"
        ours = train(program, path, task, work, work / "run")
        wanted = train(program, folder / model, task, work, work / "family", "--no-export")
        far = max(abs(a - b) / abs(b) for a, b in zip(ours, wanted, strict=True))
        assert len(ours) == 10 and far <= 1e-4, f"losses differ by {far:.2g}: {ours} and {wanted}"
        swap = ["--set", f"zero_optimization.offload_optimizer.nvme_path={work}/nvme",
                "--set", f"zero_optimization.offload_param.nvme_path={work}/nvme"]
        (work / "nvme").mkdir()
        train(program, path, task, work, work / "spread", *SPREAD, *swap)
        for run_name in ("run", "spread"):
            run(program, "export", work / run_name, "--onnx", work / f"{run_name}-out")
        one, two = ((work / f"{r}-out" / "model.onnx").read_bytes() for r in ("run", "spread"))
        assert one != path.read_bytes(), "training changed nothing"
        assert one == two, "two ranks at stage 3 with everything on disk have other weights"
        losses = train(program, path, task, work, work / "lora", "--set", "spillway.lora.r=4", "--set",
                       "spillway.lora.target_modules=all-linear")
        assert losses[0] == ours[0] and losses[-1] != ours[-1], "adapters do not begin at the base"
        return far


def check(program, folder, wanted):
    names = wanted or sorted(p.parent.name for p in folder.glob("*/model.onnx"))
    wrong = 0
    for name in names:
        try:
            print(f"{name}: ok, losses within {check_one(program, folder, name):.1g}", flush=True)
        except AssertionError as problem:
            wrong += 1
            print(f"{name}: {problem}", flush=True)
    print(f"{len(names)} files, {wrong} failed")
    return 1 if wrong or not names else 0


def main():
    if sys.argv[1] == "check":
        return check(pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve(), sys.argv[4:])
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as missing:
        print(f"skipped: {missing}")
        return 77
    if sys.argv[1] == "case":
        make_cases(pathlib.Path(sys.argv[2]))
    else:
        make(pathlib.Path(sys.argv[2]), sys.argv[3:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
