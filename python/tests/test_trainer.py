# SPDX-License-Identifier: Apache-2.0
"""examples/from_trainer.py: what Hugging Face's Trainer trains, and the same here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT


def test_the_example_beside_trainer_gives_the_same_losses(tmp_path: Path) -> None:
    for module in ("torch", "transformers", "accelerate"):
        pytest.importorskip(module)
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
    said = subprocess.run([sys.executable, ROOT / "examples" / "from_trainer.py", tmp_path],
                          check=True, text=True, stdout=subprocess.PIPE, env=environment).stdout
    pairs = re.findall(r"^ *\d+ +(\d+\.\d+) +(\d+\.\d+)$", said, re.MULTILINE)
    assert len(pairs) == 8, said
    for theirs, ours in pairs:
        assert abs(float(theirs) - float(ours)) < 2e-4, said
    assert float(pairs[-1][1]) < float(pairs[0][1])
    assert float(said.split()[-1]) < 5e-4, said
    assert (tmp_path / "spillway" / "model.safetensors").exists()
