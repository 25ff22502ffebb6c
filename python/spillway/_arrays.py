# SPDX-License-Identifier: Apache-2.0
"""numpy arrays as the tensors of a batch: no copy where an array is row-major already."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from ._library import DTYPES, MAX_RANK, Batch, Shape, Tensor, View
from .errors import ArgumentError

Arrays = Dict[str, "np.ndarray[Any, Any]"]

_NAMES = {code: np.dtype(name) for name, code in DTYPES.items()}
_SHORT = {"float": "f", "int": "i", "uint": "u", "bool": "bool"}


def numpy_dtype(code: int) -> "np.dtype[Any]":
    """Name of an enum sw_dtype."""
    return _NAMES[code]


def describe(dtype: Any, shape: Sequence[int]) -> str:
    """Describes a tensor as the library's messages do: i32[8, 64]."""
    name = np.dtype(dtype).name
    kind = name.rstrip("0123456789")
    return f"{_SHORT.get(kind, kind)}{name[len(kind):]}[{', '.join(str(d) for d in shape)}]"


def from_tensor(value: Any) -> "np.ndarray[Any, Any]":
    """Converts a tensor of any library, a buffer or nested lists to an array. No tensor library is
    imported."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if hasattr(value, "numpy"):
        try:
            return np.asarray(value.numpy())
        except TypeError:  # bf16, which numpy does not have
            return np.asarray(value.float().numpy())
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.asarray(np.from_dlpack(value))
    return np.asarray(value)


def as_array(name: str, value: Any) -> "np.ndarray[Any, Any]":
    """Converts a value to a row-major array of a dtype that the library has a name for."""
    array = np.asarray(value)
    if array.dtype.name not in DTYPES or not array.dtype.isnative:
        raise ArgumentError(f"{name}: wanted numbers of this machine, got dtype {array.dtype.str}")
    if array.ndim > MAX_RANK:
        raise ArgumentError(f"{name}: it has {array.ndim} dimensions; there are at most {MAX_RANK}")
    return np.ascontiguousarray(array) if array.ndim else array


def batch_of(arrays: Mapping[str, "np.ndarray[Any, Any]"]) -> Batch:
    """Arrays from as_array; the batch keeps them and borrows their memory."""
    tensors = (Tensor * max(len(arrays), 1))()
    for tensor, (name, array) in zip(tensors, arrays.items()):
        shape = Shape(array.ndim, tuple(array.shape))
        tensor.name = name.encode()
        tensor.view = View(array.ctypes.data, DTYPES[array.dtype.name], shape)
    batch = Batch(tensors, len(arrays))
    batch.keep = (tensors, list(arrays.values()))
    return batch


def batches_of(micro_batches: Sequence[Arrays]) -> "Tuple[ctypes.Array[Batch], List[Batch]]":
    """An array of batches, and what has to live as long as it is used."""
    kept = [batch_of(arrays) for arrays in micro_batches]
    return (Batch * max(len(kept), 1))(*kept), kept
