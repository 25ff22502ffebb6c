#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs batches of `spillway export --onnx --verify` in ONNX Runtime and compares the logits.

    python3 onnx_verify.py FOLDER CASE WITHIN

FOLDER: the exported files; CASE: a safetensors file with the inputs and logits of each batch, as
spillway computed them. Exit status 1 if logits differ by more than WITHIN, 2 if the files do not
run, 77 if a package is missing; the last line says so.
"""

import json
import os
import sys


def read(path, np):
    """The tensors of a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    kinds = {"F32": np.float32, "I32": np.int32}
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[t["data_offsets"][0]:t["data_offsets"][1]],
                                kinds[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items()}


def run(session, inputs):
    wanted = {i.name for i in session.get_inputs()}
    return session.run(None, {name: x for name, x in inputs.items() if name in wanted})[0]


def logits(sessions, config, inputs, np):
    if len(sessions) == 1:
        return run(next(iter(sessions.values())), inputs)
    given = inputs["labels"]
    ids = np.concatenate([np.full_like(given[:, :1], config.get("decoder_start_token_id") or 0),
                          given[:, :-1]], 1)
    encoded = run(sessions["encoder_model.onnx"], inputs)
    return run(sessions["decoder_model.onnx"],
               {"input_ids": ids, "encoder_hidden_states": encoded,
                "encoder_attention_mask": inputs["attention_mask"]})


def main():
    folder, case, within = sys.argv[1], sys.argv[2], float(sys.argv[3])
    try:
        import numpy as np
        import onnxruntime
    except ImportError as missing:
        print(f"not verified: {missing} (pip install onnxruntime)")
        return 77
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    names = [n for n in ("model.onnx", "encoder_model.onnx", "decoder_model.onnx")
             if os.path.exists(os.path.join(folder, n))]
    if not names:  # a graph that came in keeps its name
        names = [n for n in os.listdir(folder) if n.endswith(".onnx")]
        if len(names) != 1:
            print(f"not verified: {folder} has {len(names)} .onnx files, and none is model.onnx")
            return 2
    try:
        sessions = {n: onnxruntime.InferenceSession(os.path.join(folder, n), options,
                                                    providers=["CPUExecutionProvider"])
                    for n in names}
    except Exception as error:  # pylint: disable=broad-except
        if "NOT_IMPLEMENTED" in str(error):
            print(f"not verified: ONNX Runtime {onnxruntime.__version__} has no kernel: {error}")
            return 77
        print(f"not verified: ONNX Runtime {onnxruntime.__version__}: {error}")
        return 2
    config = {}  # the graph of a file may have none
    if os.path.exists(os.path.join(folder, "config.json")):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    tensors = read(case, np)
    most, n = 0.0, 0
    while f"{n}.logits" in tensors:
        own = {name[len(f"{n}."):]: x for name, x in tensors.items() if name.startswith(f"{n}.")}
        want = own.pop("logits")
        inputs = {name: x.astype(np.int64) if x.dtype == np.int32 else x
                  for name, x in own.items()}
        got = logits(sessions, config, inputs, np).astype(np.float64)
        apart = np.abs(got - want.reshape(got.shape))
        mask = own.get("attention_mask")
        if mask is not None and "labels" not in own and apart.shape[:2] == mask.shape:
            apart = apart[mask != 0]  # logits of padding have no meaning
        most, n = max(most, float(apart.max())), n + 1
    good = most <= within
    print(f"{'verified' if good else 'WRONG'}: {n} random batches in ONNX Runtime "
          f"{onnxruntime.__version__}, logits differ by {most:.2g} at most (wanted {within:.2g})")
    return 0 if good and n > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
