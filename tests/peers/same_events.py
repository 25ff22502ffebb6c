#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The event files of a run through TensorBoard's own reader, and its CSV files through Python's.

    python3 tests/peers/same_events.py RUN EVENTS CSV

RUN: the --output of a training, EVENTS and CSV: the folders of its `tensorboard` and `csv_monitor` blocks.
Every number of metrics.jsonl must be there once, at its count of samples, as 32 bits in event files and as
64 bits in CSV. Exit status 1 where one differs, is missing or is there twice, 77 where tensorboard is missing.
"""

import csv
import json
import os
import struct
import sys

TAGS = {
    "loss": "Train/Samples/train_loss",
    "lr": "Train/Samples/lr",
    "grad_norm": "Train/Samples/grad_norm",
    "tokens_per_s": "Train/Samples/tokens_per_s",
    "val_loss": "Validation/Samples/loss",
}


def f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def main():
    run, events, rows = sys.argv[1:4]
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        sys.exit(77)
    reader = EventAccumulator(events, size_guidance={"scalars": 0})
    reader.Reload()
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        steps = [json.loads(line) for line in file]
    bad = 0
    for key, tag in TAGS.items():
        wanted = [(step["samples"], step[key]) for step in steps if key in step]
        if not wanted:
            continue
        found = [(point.step, point.value) for point in reader.Scalars(tag)]
        with open(os.path.join(rows, tag.replace("/", "_") + ".csv"), encoding="utf-8", newline="") as file:
            table = list(csv.reader(file))
        same = found == [(x, f32(value)) for x, value in wanted]
        same_rows = table[0] == ["step", tag.split("/")[-1]] and [(int(x), float(value)) for x, value in table[1:]] == wanted
        print(f"{tag:28} {len(wanted):6} points  event file {'same' if same else 'DIFFERS'}  CSV {'same' if same_rows else 'DIFFERS'}")
        bad += not (same and same_rows)
    sys.exit(bad > 0)


main()
