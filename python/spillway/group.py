# SPDX-License-Identifier: Apache-2.0
"""Ranks along one axis of the mesh, for exchanges of your own."""

from __future__ import annotations

from ctypes import byref, c_int, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import as_array
from ._library import lib
from .errors import ArgumentError

if TYPE_CHECKING:
    from .engine import Engine


class Group:
    """The ranks that differ from this one along one axis only; :meth:`Engine.group` gives it.

    All its ranks make the same calls in the same order, between other calls of the engine.
    """

    def __init__(self, engine: "Engine", axis: str) -> None:
        out = c_void_p()
        engine._call("sw_engine_group", axis.encode(), byref(out))
        self._engine = engine
        self._comm = out
        self.axis = axis  #: "pipe", "data", "expert", "context" or "tensor"
        self.rank = int(lib.sw_comm_rank(out))  #: this rank's number in the group
        self.size = int(lib.sw_comm_size(out))  #: number of its ranks

    def __repr__(self) -> str:
        return f"<spillway.Group, rank {self.rank} of {self.size} along {self.axis}>"

    def all_gather(self, value: Any) -> "np.ndarray[Any, Any]":
        """The arrays of all ranks, of one shape and dtype, along a new first dimension."""
        mine = np.ascontiguousarray(as_array("value", value))
        out = np.empty((self.size, *np.shape(value)), mine.dtype)
        self._engine._exchange("sw_comm_all_gather", self._comm, mine.ctypes.data,
                               out.ctypes.data, mine.nbytes, b"an array of the caller")
        return out

    def broadcast(self, value: Any, root: int = 0) -> "np.ndarray[Any, Any]":
        """The array of rank `root`; every rank gives one of its shape and dtype."""
        if not 0 <= root < self.size:
            raise ArgumentError(f"root is {root}; wanted 0 to {self.size - 1}")
        out = np.array(as_array("value", value), order="C")
        self._engine._exchange("sw_comm_broadcast", self._comm, c_int(root), out.ctypes.data,
                               out.nbytes, b"an array of the caller")
        return out

    def barrier(self) -> None:
        """Returns once all ranks of the group have called it."""
        self._engine._exchange("sw_comm_barrier", self._comm, b"a barrier of the caller")
