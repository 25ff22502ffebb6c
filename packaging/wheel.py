# SPDX-License-Identifier: Apache-2.0
"""wheel.py INSTALLED OUTPUT: puts python/spillway, and the program and the library that `cmake --install` left in
INSTALLED, into a wheel in the folder OUTPUT. Nothing of it depends on when or where. wheel.sh calls it."""

import base64
import csv
import hashlib
import io
import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TAG = "py3-none-linux_x86_64"
# What is linked statically, or put beside: their licences go along.
BUNDLED = ["libdnnl2", "libgomp1", "libjpeg62-turbo", "libpcre2-8-0", "libpng16-16", "libutf8proc2", "libxxhash0", "liburing2",
           "ocl-icd-libopencl1"]

METADATA = """Metadata-Version: 2.1
Name: spillway_train
Version: {version}
Summary: Trains transformer models that are larger than memory
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: numpy>=1.21
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

"""
WHEEL = f"Wheel-Version: 1.0\nGenerator: spillway\nRoot-Is-Purelib: false\nTag: {TAG}\n"
ENTRIES = "[console_scripts]\nspillway = _spillway_program:main\n"


def contents(installed: Path, version: str) -> dict:
    """Names in the wheel, their bytes, and whether they are programs."""
    library = next(path for path in sorted(installed.rglob("libspillway.so.*")) if path.is_symlink())
    files = {f"spillway/{path.name}": (path.read_bytes(), False)
             for path in sorted((ROOT / "python" / "spillway").iterdir()) if path.is_file()}
    files["_spillway_program.py"] = ((ROOT / "python" / "_spillway_program.py").read_bytes(), False)
    files[f"spillway/lib/{library.name}"] = (library.read_bytes(), True)
    files["spillway/bin/spillway"] = ((installed / "bin" / "spillway").read_bytes(), True)
    files |= {f"spillway/share/clusters/{path.name}": (path.read_bytes(), False)
              for path in sorted((ROOT / "share" / "clusters").iterdir())}
    for name in ("published.json", "onnx_verify.py"):
        files[f"spillway/share/{name}"] = ((ROOT / "share" / name).read_bytes(), False)
    files |= {f"spillway/docs/{path.name}": (path.read_bytes(), False)
              for path in sorted((ROOT / "docs").iterdir()) if path.suffix in (".md", ".py")}
    info = f"spillway_train-{version}.dist-info"
    guide = (ROOT / "docs" / "python.md").read_text()
    files[f"{info}/METADATA"] = ((METADATA.format(version=version) + guide).encode(), False)
    files[f"{info}/WHEEL"] = (WHEEL.encode(), False)
    files[f"{info}/entry_points.txt"] = (ENTRIES.encode(), False)
    files[f"{info}/licenses/LICENSE"] = ((ROOT / "LICENSE").read_bytes(), False)
    for package in BUNDLED:
        path = Path("/usr/share/doc") / package / "copyright"
        if not path.exists():
            sys.exit(f"wheel.py: {path}: the licence of {package} is not there")
        files[f"{info}/licenses/{package}"] = (path.read_bytes(), False)
    return files


def record(files: dict, name: str) -> bytes:
    """The list of all files with their digests."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for path, (data, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([path, f"sha256={digest}", len(data)])
    rows.writerow([name, "", ""])
    return text.getvalue().encode()


def main() -> None:
    installed, output = Path(sys.argv[1]), Path(sys.argv[2])
    found = re.search(r"^project\(spillway VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)
    version = found[1]
    files = contents(installed, version)
    name = f"spillway_train-{version}.dist-info/RECORD"
    files[name] = (record(files, name), False)
    with zipfile.ZipFile(output / f"spillway_train-{version}-{TAG}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, (data, program) in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if program else 0o100644) << 16
            wheel.writestr(entry, data)


main()
