# SPDX-License-Identifier: Apache-2.0
"""The command `spillway`: the program that came with the package, in place of this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).parent / "bin" / "spillway"
    try:
        os.execv(program, ["spillway", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{program}: {error.strerror}")
