# SPDX-License-Identifier: Apache-2.0
"""Spillway: trains transformer models that are larger than memory.

    import spillway

    with spillway.initialize(model="gpt2", config="ds_config.json") as engine:
        for batch in batches:
            loss = engine.train_batch(batch)
        engine.export("gpt2-mine")

docs/python.md of the project is the guide.
"""

from __future__ import annotations

from ._library import lib as _lib
from .batch import Batch, InputInfo
from .data import Dataset, Loader, Tokenizer, shift_labels
from .engine import Engine, StepReport, initialize, plan
from .group import Group
from .errors import (
    ArgumentError, ClosedError, ConfigError, DeviceError, FileError, FormatError, OutOfMemoryError,
    RankError, SpillwayError, StoppedError, UnsupportedError,
)

__version__: str = _lib.sw_version().decode()

__all__ = [
    "ArgumentError", "Batch", "ClosedError", "ConfigError", "Dataset", "DeviceError", "Engine",
    "FileError", "FormatError", "Group", "InputInfo", "Loader", "OutOfMemoryError", "RankError",
    "SpillwayError", "StepReport", "StoppedError", "Tokenizer", "UnsupportedError", "__version__",
    "initialize", "plan", "shift_labels",
]
