#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ONNX exports, by the peers that read them: the checker of the package onnx, and ONNX Runtime.

    SPILLWAY_LIBRARY=build/libspillway.so PYTHONPATH=python \\
        python3 tests/peers/same_onnx.py build/spillway CASES [NAME..]

CASES: a folder of recorded cases, NAME: some of them, such as gpt2/base. Each case with a model and
logits is exported at opsets 17, 20 and 23. The checker must accept the file, it must be what
Google's serializer writes of it, and its logits must be within 1e-4 of the recorded ones, and of
spillway's at three other sizes. Exit status 1 if one is not, 77 if a package is missing.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    from safetensors import safe_open
    import spillway
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

OPSETS, SIZES, WITHIN = (17, 20, 23), ((1, 3), (4, 11), (2, 6)), 1e-4
ROUNDING = {"float16": 0.05, "bfloat16": 0.5}


def read(path):
    with safe_open(path, "np") as file:
        return {key: file.get_tensor(key) for key in file.keys()
                if key.startswith(("input.", "output."))}


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(one, inputs):
    wanted = {i.name for i in one.get_inputs()}
    names = [o.name for o in one.get_outputs()]
    return dict(zip(names, one.run(names, {k: v for k, v in inputs.items() if k in wanted})))


def complete(inputs, models):
    """The inputs that a batch may leave out."""
    inputs = dict(inputs)
    if "input_ids" in inputs:
        inputs.setdefault("attention_mask", np.ones_like(inputs["input_ids"]))
        inputs.setdefault("token_type_ids", np.zeros_like(inputs["input_ids"]))
    return inputs


class Exported:
    """One export, in as many files as it has."""

    def __init__(self, folder, config):
        self.config = config
        self.files = sorted(folder.glob("*.onnx"))
        for path in self.files:
            onnx.checker.check_model(str(path), full_check=True)
            same = onnx.load(str(path), load_external_data=False).SerializeToString() == path.read_bytes()
            assert same, f"{path.name}: Google's serializer has other bytes"
        self.sessions = {path.name: session(path) for path in self.files}

    def __call__(self, inputs):
        inputs = complete(inputs, self.sessions)
        if "model.onnx" in self.sessions:
            return run(self.sessions["model.onnx"], inputs)
        encoded = run(self.sessions["encoder_model.onnx"], inputs)["last_hidden_state"]
        given = inputs["labels"]
        first = self.config.get("decoder_start_token_id", 0)
        if first is None:  # mBART's rows begin with their last token, the language
            pad = self.config.get("pad_token_id")
            last = ((given != -100) & (given != pad)).sum(1, keepdims=True) - 1
            start = np.take_along_axis(given, last, 1)
        else:
            start = np.full_like(given[:, :1], first)
        ids = np.concatenate([start, given[:, :-1]], 1)
        ids[ids == -100] = self.config.get("pad_token_id") or 0
        return run(self.sessions["decoder_model.onnx"],
                   dict(input_ids=ids, encoder_hidden_states=encoded,
                        encoder_attention_mask=inputs["attention_mask"]))


def apart(got, want, mask):
    """The largest difference, of tokens that are there."""
    both = np.abs(got.astype(np.float64) - want.astype(np.float64))
    if mask is not None and both.ndim >= 2 and both.shape[:2] == mask.shape:
        both = both[mask != 0]
    return float(both.max())


def drawn(recorded, config, size, draw):
    batch, tokens = size
    inputs = {}
    if "pixel_values" in recorded:
        return {"pixel_values": draw.standard_normal((batch, *recorded["pixel_values"].shape[1:])).astype(np.float32)}
    longest = max([config[k] for k in ("max_position_embeddings", "n_positions") if config.get(k)] or [32])
    tokens = min(tokens, longest - 3)
    vocab = config["vocab_size"] if "vocab_size" in config else config["arguments"]["vocab"]
    inputs["input_ids"] = draw.integers(5, vocab, (batch, tokens))
    lengths = draw.integers(1, tokens + 1, batch)
    lengths[0] = tokens
    if "lengths" in recorded:
        inputs["lengths"] = lengths
        return inputs
    inputs["attention_mask"] = (np.arange(tokens) < lengths[:, None]).astype(np.int64)
    pad = config.get("pad_token_id")
    inputs["input_ids"][inputs["attention_mask"] == 0] = pad if pad is not None else 0
    if config.get("eos_token_id") is not None and "encoder_layers" in config:
        for row, n in enumerate(lengths):  # BART classifies at the last one
            inputs["input_ids"][row, n - 1] = config["eos_token_id"]
    if "token_type_ids" in recorded:
        inputs["token_type_ids"] = draw.integers(0, config.get("type_vocab_size") or 1, (batch, tokens))
    if config.get("is_encoder_decoder") and recorded.get("labels", np.zeros(1)).ndim == 2:
        inputs["labels"] = draw.integers(5, vocab, (batch, tokens + 2))
    return inputs


def ours(case, adapter, inputs):
    batch = len(next(iter(inputs.values())))
    tokens = inputs["input_ids"].shape[1] if "input_ids" in inputs else 0
    target = inputs["labels"].shape[1] if "labels" in inputs else 0
    with spillway.initialize(case, {"train_micro_batch_size_per_gpu": batch}, train=False, want_logits=True,
                             want_mask="attention_mask" in inputs, seq_len=tokens, target_len=target,
                             adapter=adapter, device="cpu") as engine:
        names = engine.inputs
        given = {k: v.astype(np.int32) if v.dtype == np.int64 else v for k, v in inputs.items() if k in names}
        logits = engine.logits(given)
    return logits


def check(program, case, draw):
    config = json.loads((case / "config.json").read_text())
    recorded = read(case / "reference.safetensors")
    adapter = case / "adapter" if (case / "adapter").exists() else None
    inputs = {k[6:]: v for k, v in recorded.items() if k.startswith("input.")}
    outputs = {k[7:]: v for k, v in recorded.items() if k.startswith("output.") and "logits" in k}
    for opset in OPSETS:
        with tempfile.TemporaryDirectory() as folder:
            source = [adapter, "--model", case] if adapter else [case]
            done = subprocess.run([program, "export", *source, "--onnx", folder, "--opset", str(opset)],
                                  capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return done.stderr.strip()
            exported = Exported(pathlib.Path(folder), config)
            mask = None if "labels" in inputs and config.get("is_encoder_decoder") else inputs.get("attention_mask")
            got = exported(inputs)
            for name, value in outputs.items():
                if name in got and got[name].shape == value.shape and apart(got[name], value, mask) > WITHIN:
                    return f"opset {opset}: {name} is {apart(got[name], value, mask):.3g} from the recording"
                if name in got and got[name].shape != value.shape:
                    return f"opset {opset}: {name} has shape {got[name].shape}, the recording {value.shape}"
            for size in SIZES:
                some = drawn(inputs, config, size, draw)
                got, want = exported(some), ours(case, adapter, some)
                first = next(iter(got.values()))
                if len(got) > 1:  # two heads: one after the other
                    first = np.concatenate([v.reshape(-1) for v in got.values()])[:want.size]
                    want = want.reshape(-1)
                by_row = want.ndim > 1 and not config.get("is_encoder_decoder")
                far = apart(first.reshape(want.shape), want, some.get("attention_mask") if by_row else None)
                if not far <= WITHIN:
                    return f"opset {opset}: logits of {size} are {far:.3g} from ours"
    return None


def main():
    program, root, names = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    draw = np.random.default_rng(1)
    cases = [root / name for name in names] or sorted(p.parent for p in root.glob("**/reference.safetensors"))
    n = wrong = 0
    for case in cases:
        if not (case / "config.json").exists() or not list(case.glob("model*.safetensors")):
            continue
        with safe_open(case / "reference.safetensors", "np") as file:
            keys = list(file.keys())
        if not any(k.startswith("output.") and "logits" in k for k in keys) or "input.segment_ids" in keys:
            continue  # exports do not read packed rows
        n += 1
        try:
            problem = check(program, case, draw)
        except Exception as error:  # of the peers, or of spillway
            problem = f"{type(error).__name__}: {str(error)[:300]}"
        if problem and "is not built in this version" in problem:
            n -= 1
            print(f"{case.relative_to(root)}: no such family")
            continue
        wrong += problem is not None
        print(f"{case.relative_to(root)}: {problem or 'ok'}", flush=True)
    print(f"{n} models, {wrong} failed")
    return 1 if wrong or n == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
