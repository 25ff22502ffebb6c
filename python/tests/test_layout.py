# SPDX-License-Identifier: Apache-2.0
"""The declarations for ctypes are those of the headers, as the project's record has them."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from typing import Any, Dict

import pytest

from conftest import ROOT
from spillway import _library

RECORD = (ROOT / "tests" / "checks" / "abi.txt").read_text().splitlines()
CTYPES = {"int": ctypes.c_int, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64,
          "uint64_t": ctypes.c_uint64, "_Bool": ctypes.c_bool, "double": ctypes.c_double,
          "size_t": ctypes.c_size_t, "void": None}


@pytest.mark.parametrize("name", _library.STRUCTS)
def test_fields_are_where_c_has_them(name: str) -> None:
    struct = _library.STRUCTS[name]
    ours = f"struct {name} {ctypes.sizeof(struct)}:"
    for field, *_ in struct._fields_:
        at = getattr(struct, field)
        ours += f" {field}@{at.offset}+{at.size}"
    assert ours in RECORD


def test_functions_take_what_c_takes() -> None:
    declared: Dict[str, Any] = {}
    for line in RECORD:
        found = re.fullmatch(r"function (.*?)(sw_\w+) \((.*)\);", line)
        if found:
            arguments = [] if found[3] == "void" else found[3].split(", ")
            declared[found[2]] = (found[1].strip(), arguments)

    def fits(ours: Any, theirs: str) -> bool:
        if theirs in ("sw_status", "enum sw_dtype", "enum sw_split"):
            theirs = "int"
        if theirs.endswith("*"):
            return ours in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(ours, "contents")
        return CTYPES[theirs] is ours

    for name, result, arguments in _library._FUNCTIONS:
        theirs, wanted = declared[name]
        assert fits(result, theirs), f"{name} gives {theirs}"
        assert len(arguments) == len(wanted), name
        for ours, c in zip(arguments, wanted):
            assert fits(ours, c), f"{name} takes {c}"


def test_constants_are_those_of_c() -> None:
    short = {"float": "F", "int": "I", "uint": "U", "bool": "BOOL"}
    for name, code in {**_library.DTYPES, "bf16": _library.BF16, "dtype_count": 13}.items():
        kind = name.rstrip("0123456789")
        c = short[kind] + name[len(kind):] if kind in short else name.upper()
        assert f"constant SW_{c} {code}" in RECORD
    assert f"constant SW_MAX_RANK {_library.MAX_RANK}" in RECORD
    for status, kind in _library._STATUS.items():
        assert any(re.fullmatch(rf"constant SW_E_\w+ {status}", line) for line in RECORD), kind


def test_a_library_that_means_something_else_is_not_imported() -> None:
    code = ("import ctypes, spillway._library as l\n"
            "l.STRUCTS['sw_batch'] = l.View\n"
            "try: l._check(ctypes.CDLL(l.lib._name))\n"
            "except ImportError as e: print(e)\n"
            "l.ABI_VERSION += 1\n"
            "try: l._check(ctypes.CDLL(l.lib._name))\n"
            "except ImportError as e: print(e)\n")
    said = subprocess.run([sys.executable, "-c", code], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    assert "struct sw_batch has 16 bytes there, here 120" in said
    assert re.search(r"binary interface \d+, this package is for \d+", said)
    environment = dict(os.environ, SPILLWAY_LIBRARY="/no/such.so")
    failed = subprocess.run([sys.executable, "-c", "import spillway"], env=environment, text=True,
                            stderr=subprocess.PIPE)
    assert failed.returncode and "SPILLWAY_LIBRARY: /no/such.so" in failed.stderr
