# SPDX-License-Identifier: Apache-2.0
"""The base of engines, tokenizers and datasets: an open object of the library.

It is closed once: by close(), at the end of a `with`, when nobody refers to it any more, or when
Python ends. One thread at a time uses it, in the process that opened it: the threads that compute
do not follow into the child of a fork.
"""

from __future__ import annotations

import os
import threading
import weakref
from ctypes import c_void_p
from types import TracebackType
from typing import Any, Callable, Optional, Type, TypeVar

from ._library import check, lib
from .errors import ArgumentError, ClosedError

T = TypeVar("T", bound="Handle")


def _close(pointer: Optional[int], close: Callable[[c_void_p], None], process: int) -> None:
    if os.getpid() == process:
        close(c_void_p(pointer))


class Handle:
    """Base of objects that must be closed; usable in a `with`."""

    _what = "it"

    def __init__(self, pointer: c_void_p, close: Callable[[c_void_p], None]) -> None:
        self._pointer = pointer
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _close, pointer.value, close, self._process)

    @property
    def closed(self) -> bool:
        """Whether the object was closed."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Closes the object. Closing again does nothing."""
        if not self._lock.acquire(blocking=False):
            raise ArgumentError(f"the {self._what} is in use by another thread")
        try:
            self._finalizer()
        finally:
            self._lock.release()

    def __enter__(self: T) -> T:
        self._check()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def _check(self) -> None:
        if self.closed:
            raise ClosedError(f"the {self._what} is closed")
        if os.getpid() != self._process:
            raise ArgumentError(f"the {self._what} belongs to process {self._process}, which forked "
                                "this one: open it here")

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Calls a function of the library on the object and returns its result."""
        return self._guarded(name, self._pointer, *arguments)

    def _guarded(self, name: str, *arguments: Any) -> Any:
        """Calls a function of the library while nobody else uses or closes the object."""
        self._check()
        if not self._lock.acquire(blocking=False):
            raise ArgumentError(f"the {self._what} is in use by another thread")
        try:
            if self.closed:
                raise ClosedError(f"the {self._what} is closed")
            return getattr(lib, name)(*arguments)
        finally:
            self._lock.release()

    def _call(self, name: str, *arguments: Any) -> int:
        """Calls a function that returns a status, and raises a failure."""
        return check(self._ask(name, *arguments))
