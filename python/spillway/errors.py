# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each status of the library, with its message.

Each is a :class:`SpillwayError` and the Python exception that comes closest, so that both
``except spillway.SpillwayError`` and ``except ValueError`` do what one expects.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError", "ClosedError", "ConfigError", "DeviceError", "FileError", "FormatError",
    "OutOfMemoryError", "RankError", "SpillwayError", "StoppedError", "UnsupportedError",
]


class SpillwayError(Exception):
    """The library refused a request, or a request failed. The text is one line that says why."""


class ArgumentError(SpillwayError, ValueError):
    """The call is wrong: a tensor of another shape or dtype, an id out of range, calls out of
    order. Nothing has run."""


class ClosedError(ArgumentError):
    """The engine, tokenizer or dataset is closed."""


class ConfigError(SpillwayError, ValueError):
    """The configuration, or an option, cannot be honoured; the message names the key."""


class OutOfMemoryError(SpillwayError, MemoryError):
    """A plan does not fit. The message has the missing bytes."""


class FileError(SpillwayError, OSError):
    """A file, or a device, could not be read or written; the message has path and reason."""


class FormatError(SpillwayError, ValueError):
    """A file is not what it claims to be."""


class UnsupportedError(SpillwayError, NotImplementedError):
    """This build cannot do that."""


class RankError(SpillwayError, RuntimeError):
    """Another rank failed; the message names it."""


class DeviceError(SpillwayError, RuntimeError):
    """The accelerator failed."""


class StoppedError(SpillwayError, RuntimeError):
    """The call was stopped on request."""
