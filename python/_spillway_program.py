# SPDX-License-Identifier: Apache-2.0
"""The command `spillway` of a wheel: the program that came with the package, in place of this process. Beside the
package, not in it, so that neither numpy nor the library is loaded for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).parent / "spillway" / "bin" / "spillway"
    try:
        os.execv(program, ["spillway", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{program}: {error.strerror}")
