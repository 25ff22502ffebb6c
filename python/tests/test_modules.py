# SPDX-License-Identifier: Apache-2.0
"""The shared library finds its modules beside its own file, whatever folder a program is in."""

import shutil
import subprocess
import sys
from pathlib import Path

from spillway._library import lib

# A relative name is all that the dynamic loader is told; then the program goes elsewhere.
PROGRAM = """
import ctypes, os
library = ctypes.CDLL("./libspillway.so")
os.chdir("../elsewhere")
text = ctypes.c_char_p()
assert library.sw_doctor_text(1, ctypes.byref(text)) == 0
print("\\n".join(line for line in text.value.decode().split("\\n") if " cuda " in line or " hip " in line))
"""


def test_modules_of_the_current_folder_are_not_looked_at(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    (elsewhere / "spillway").mkdir(parents=True)
    shutil.copy(lib._name, here / "libspillway.so")
    for name in ("spillway_cuda.so", "spillway_hip.so"):
        for folder in (elsewhere, elsewhere / "spillway"):
            (folder / name).write_text("no library")
    said = subprocess.run([sys.executable, "-c", PROGRAM], cwd=here, capture_output=True, text=True, check=True).stdout
    assert said.count(str(here.resolve())) == 2, said
    assert "elsewhere" not in said and "./" not in said
