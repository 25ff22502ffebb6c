# SPDX-License-Identifier: Apache-2.0
"""What the tests share: the program that was built beside the library, and a small text."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

import spillway

ROOT = Path(__file__).resolve().parents[2]
CONFIG: Dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.1}},
    "spillway": {"threads": 1},
}
# A model of a few hundred parameters, for what is opened often.
SMALL = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 11,
         "n_positions": 8, "n_embd": 4, "n_layer": 1, "n_head": 1, "resid_pdrop": 0,
         "embd_pdrop": 0, "attn_pdrop": 0}


@pytest.fixture(scope="session")
def program() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs `spillway`, which must succeed."""
    path = os.environ.get("SPILLWAY_PROGRAM")
    if not path:
        pytest.skip("SPILLWAY_PROGRAM does not name the program")

    def run(*words: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([path, *map(str, words)], check=True, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    return run


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some kilobytes of a text."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"{n} and {n * n % 97} are two numbers.\n" for n in range(300)))
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The small model's config.json."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    return path


def losses(folder: Path) -> List[float]:
    """Of a training's metrics.jsonl."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def opened(model: Any = "gpt2-tiny", **options: Any) -> spillway.Engine:
    """An engine as most tests want it."""
    options.setdefault("config", CONFIG)
    options.setdefault("seq_len", 16 if model == "gpt2-tiny" else 4)
    return spillway.initialize(model, **options)
