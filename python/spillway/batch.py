# SPDX-License-Identifier: Apache-2.0
"""Conversion of batches of transformers' collators to the engine's.

In transformers, ids are int64 tensors of any framework, labels of a language model stand at their
own tokens, and rows are padded on either side to the longest of them. The engine's inputs have
fixed shapes in i32 and f32, and the label of a token is the token after it. The engine lists its
inputs, their names in transformers and their padding (:class:`InputInfo`).

Nothing that changes a loss is dropped. A tensor without a place in the engine's inputs is refused,
unless it states what holds anyway.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple, Union

import numpy as np

from ._arrays import as_array, describe, from_tensor
from .data import IGNORED, shift_labels
from .errors import ArgumentError

if TYPE_CHECKING:
    from .engine import Engine

    Array = np.ndarray[Any, Any]

_INT32 = np.iinfo(np.int32)
_PLACES = ("start_positions", "end_positions")  # labels that are places of the row


@dataclass(frozen=True)
class InputInfo:
    """A tensor of a micro-batch."""

    name: str
    dtype: "np.dtype[Any]"
    shape: Tuple[int, ...]
    optional: bool  #: a batch may leave it out
    hf_name: str = field(default="", repr=False)  #: in a batch of transformers; "": the same
    #: value after the end of a shorter row; -1 for ids: no padding id; NaN: no label
    pad: float = field(default=0.0, repr=False, compare=False)
    start: int = field(default=-1, repr=False)  #: a decoder reads it before these labels; -1: none
    #: of a label or its weight: that of a token is the one after it
    shifted: bool = field(default=False, repr=False)

    @property
    def is_label(self) -> bool:
        """Whether the loss is measured on it."""
        return self.pad == IGNORED or math.isnan(self.pad)

    @property
    def is_row(self) -> bool:
        """Whether it has a number for each token of a row, so that it may be shorter."""
        return len(self.shape) == 2 and (self.dtype == np.int32 or self.shifted)


class Batch(Dict[str, "np.ndarray[Any, Any]"]):
    """Arrays by the names of `engine.inputs`, in their shapes. The first `rows` rows and `columns`
    columns were given; the rest is padding without a loss."""

    rows: int = 0
    columns: int = 0  #: tokens of a row; for an encoder-decoder, tokens of its labels

    @classmethod
    def from_hf(cls, inputs: "Union[Engine, Mapping[str, InputInfo]]",
                batch: Mapping[str, Any]) -> "Batch":
        """Converts a batch of transformers' collators.

        inputs: an engine, or its `inputs`.
        batch: a dict or BatchEncoding of tensors of torch, numpy or another library, or of lists.
        Rows shorter than the engine's are padded on the right, whichever side they are padded on
        already. Rows that a micro-batch lacks are added and have no loss.

        Raises ArgumentError, naming the key, the shape wanted and the shape found.
        """
        given = inputs if isinstance(inputs, Mapping) else inputs.inputs
        return _Conversion(given, batch).run(cls())


def is_hf(inputs: Mapping[str, InputInfo], batch: Mapping[str, Any]) -> bool:
    """Whether a batch needs conversion: it is an object of transformers, or has a value that is not
    a numpy array of the input's dtype."""
    if isinstance(batch, Batch):
        return False
    if hasattr(batch, "convert_to_tensors"):  # BatchEncoding, BatchFeature
        return True
    return any(not isinstance(value, np.ndarray)
               or (name in inputs and value.dtype != inputs[name].dtype)
               for name, value in batch.items())


def _rows_of(name: str, value: Any, pad: float) -> Tuple[Array, List[int]]:
    """Returns the value as an array, and the lengths of its rows if they differ, else []."""
    if not isinstance(value, (list, tuple)) or not value:
        return as_array(name, from_tensor(value)), []
    try:
        rows = [from_tensor(row) for row in value]
    except ValueError:
        raise ArgumentError(f"{name}: wanted rows of numbers, got lists of several lengths within "
                            "a row") from None
    if len({row.shape for row in rows}) == 1:
        return as_array(name, np.stack(rows)), []
    if any(row.ndim != 1 for row in rows):
        raise ArgumentError(f"{name}: wanted rows of one shape, got " + " and ".join(
            describe(row.dtype, row.shape) for row in rows[:2]))
    lengths = [row.size for row in rows]
    filled = np.full((len(rows), max(lengths)), pad, dtype=np.result_type(*rows))
    for row, whole in zip(rows, filled):
        whole[:row.size] = row
    return as_array(name, filled), lengths


def _converted(name: str, array: Array, dtype: "np.dtype[Any]") -> Array:
    """Converts to the input's dtype: whole numbers that i32 holds, or numbers as f32."""
    if dtype == np.float32:
        if array.dtype.kind not in "fiu":
            raise ArgumentError(f"{name}: wanted numbers, got "
                                f"{describe(array.dtype, array.shape)}")
    elif array.dtype.kind not in "iub":
        raise ArgumentError(f"{name}: wanted whole numbers, got "
                            f"{describe(array.dtype, array.shape)}")
    elif array.size and not (_INT32.min <= int(array.min()) and int(array.max()) <= _INT32.max):
        raise ArgumentError(f"{name}: a number is beyond i32")
    return array.astype(dtype, copy=False)


def _first(where: Array) -> Tuple[int, ...]:
    """The place of the first element that is true."""
    return tuple(int(i) for i in np.argwhere(where)[0])


def _refuse_shifted(ids: Array, labels: Array) -> None:
    """Refuses labels that are the next tokens already, as they would be shifted again."""
    counted = labels[:, :-1] != IGNORED
    told = labels[:, :-1][counted]
    if told.size > 1 and np.array_equal(told, ids[:, 1:][counted]) and not np.array_equal(
            told, ids[:, :-1][counted]):
        raise ArgumentError(
            "labels: each is the token after its place already, but labels of transformers stand "
            "at their own tokens; give shifted labels as arrays in the dtypes of engine.inputs")


class _Conversion:
    """The conversion of one batch."""

    def __init__(self, inputs: Mapping[str, InputInfo], batch: Mapping[str, Any]) -> None:
        self.inputs = inputs
        self.known = {info.hf_name or name: info for name, info in inputs.items()}
        self.given: Dict[str, Any] = {}
        self.lengths: List[int] = []  # of rows of a list, if they differ
        for key, value in batch.items():
            if value is not None:
                pad = self._pad(self.known[key]) if key in self.known else 0
                self.given[key], lengths = _rows_of(key, value, pad)
                self.lengths = lengths if key == "input_ids" else self.lengths
        self._check_keys()
        first = next((key for key in self.known if key in self.given), None)
        if first is None or self.given[first].ndim == 0 or not len(self.given[first]):
            raise ArgumentError(f"the batch has no rows of {next(iter(self.known), 'anything')}")
        self.rows = len(self.given[first])
        size = inputs[self.known[first].name].shape[0]
        self.all_rows = -(-self.rows // size) * size
        self.out: Dict[str, Any] = {}

    @staticmethod
    def _pad(info: InputInfo) -> float:
        return 0 if info.pad == -1 else info.pad

    def _check_keys(self) -> None:
        """Refuses keys that are not inputs, except those that are known to be redundant."""
        has_labels = any(info.is_label for info in self.inputs.values())
        reads = any(info.start >= 0 for info in self.inputs.values())
        for key in list(self.given):
            if key in self.known or (key == "attention_mask" and "input_ids" in self.known):
                continue
            if reads and key in ("decoder_input_ids", "decoder_attention_mask"):
                continue
            if not has_labels and (key in _PLACES or "label" in key):
                del self.given[key]  # the engine has no loss
                continue
            raise ArgumentError(f"{key}: got {describe(*self._form(key))}; this model takes "
                                f"{', '.join(self.known)}")

    def _form(self, key: str) -> Tuple[np.dtype[Any], Tuple[int, ...]]:
        return self.given[key].dtype, self.given[key].shape

    def _refuse(self, key: str, info: InputInfo, shape: Tuple[int, ...], more: str = "") -> None:
        raise ArgumentError(f"{key}: wanted {describe(info.dtype, shape)}{more}, got "
                            f"{describe(*self._form(key))}")

    # ---- inputs ----

    def run(self, batch: Batch) -> Batch:
        self._tokens()
        for key, info in self.known.items():
            if key in self.given and key != "position_ids":
                array = self._fitting(key, info)
                if info.is_label:
                    array = self._as_label(key, info, array)
                elif info.shifted:
                    array = np.append(array[:, 1:], np.zeros_like(array[:, :1]), axis=1)
                self.out[info.name] = array
        self._decoder()
        self._positions()
        self._mask()
        for name, array in self.out.items():
            batch[name] = self._padded(self.inputs[name], array)
        self._blank(batch)
        batch.rows, batch.columns = self.rows, self.columns
        return batch

    def _tokens(self) -> None:
        """Takes the length of rows from the ids; everything beside them follows it."""
        self.width = self.room = self.columns = 0
        info = self.known.get("input_ids")
        if info is None or "input_ids" not in self.given:
            return
        self.room = info.shape[1]
        ids = self.given["input_ids"]
        if ids.ndim != 2 or not 0 < ids.shape[1] <= self.room:
            self._refuse("input_ids", info, (self.rows, self.room), " or fewer tokens a row")
        self.width = self.columns = ids.shape[1]

    def _fitting(self, key: str, info: InputInfo) -> Array:
        """A given array in the input's dtype; its rows may be shorter than the input's."""
        array, wanted = self.given[key], (self.rows, *info.shape[1:])
        if info.is_label and array.ndim == len(wanted) + 1 and array.shape[-1] == 1:
            array = array[..., 0]
        elif info.is_label and array.ndim == 1 and wanted[1:] == (1,):
            array = array[:, None]
        if info.start >= 0:  # of another text than the ids beside it
            if array.ndim != 2 or len(array) != self.rows or not 0 < array.shape[1] <= wanted[1]:
                self._refuse(key, info, wanted, " or fewer tokens a row")
            self.columns = array.shape[1]
        else:
            wanted = (self.rows, self.width) if info.is_row and self.width else wanted
            if array.shape != wanted:
                self._refuse(key, info, wanted)
        return _converted(key, array, info.dtype)

    def _as_label(self, key: str, info: InputInfo, labels: Array) -> Array:
        if key in _PLACES:
            if np.any(labels < 0):
                at = _first(labels < 0)
                raise ArgumentError(f"{key}: {int(labels[at])} at {list(at)}; wanted a place of "
                                    "the row, or one after its end for none")
            return np.where(labels < self.width, labels, IGNORED).astype(np.int32)
        if not info.shifted:
            return labels
        if "input_ids" in self.out:
            _refuse_shifted(self.out["input_ids"], labels)
        return shift_labels(labels)

    def _decoder(self) -> None:
        """Compares the given decoder inputs with those that follow from the labels."""
        labels_info = next((i for i in self.inputs.values() if i.start >= 0), None)
        if labels_info is None:
            return
        labels = self.out.get(labels_info.name)
        for key in ("decoder_input_ids", "decoder_attention_mask"):
            if key not in self.given:
                continue
            if labels is None:
                raise ArgumentError(f"{key}: the batch has no {labels_info.name}, from which the "
                                    "decoder's tokens follow")
            if self.given[key].shape != labels.shape:
                self._refuse(key, labels_info, labels.shape)
        if "decoder_input_ids" in self.given and labels is not None:
            read = np.full(labels.shape, labels_info.start, dtype=np.int64)
            read[:, 1:] = np.where(labels == IGNORED, self._pad(self.inputs["input_ids"]),
                                   labels)[:, :-1]
            found = self.given["decoder_input_ids"]
            if not np.array_equal(read, found):
                at = _first(read != found)
                raise ArgumentError(f"decoder_input_ids: {found[at]} at {list(at)}; this decoder "
                                    f"reads {read[at]} there: the labels, shifted right after "
                                    f"{labels_info.start}")
        if "decoder_attention_mask" in self.given and labels is not None:
            self._refuse_hiding("decoder_attention_mask", self.given["decoder_attention_mask"],
                                labels != IGNORED, "the engine has no such mask")

    def _positions(self) -> None:
        """One row of positions for all rows, unless documents are packed."""
        info = self.known.get("position_ids")
        if info is None or "position_ids" not in self.given:
            return
        array = _converted("position_ids", self.given["position_ids"], info.dtype)
        array = array[None] if array.ndim == 1 else array
        if array.ndim != 2 or len(array) not in (1, self.rows) or array.shape[1] != self.width:
            self._refuse("position_ids", info, (self.rows, self.width))
        if len(info.shape) == 2:
            self.out[info.name] = np.broadcast_to(array, (self.rows, self.width))
            return
        other = array != array[0]
        if np.any(other):
            self._refuse("position_ids", info, info.shape,
                         f", the same for all rows (another one begins at {list(_first(other))}; "
                         "with spillway.packing each row has its own)")
        places = np.arange(self.room, dtype=np.int32)
        places[:self.width] = array[0]
        self.out[info.name] = places

    # ---- padding ----

    def _mask(self) -> None:
        """Marks the tokens that are present: by the model's mask, by segments of packed rows, or
        not at all if no token that counts attends to a hidden one."""
        if "input_ids" not in self.out:
            return
        given = self.given.get("attention_mask")
        mask = np.ones((self.rows, self.width), dtype=np.int32)
        for row, n in zip(mask, self.lengths):
            row[n:] = 0
        if given is not None:
            if given.shape != mask.shape or given.dtype.kind not in "iub":
                self._refuse("attention_mask", self.inputs["input_ids"], mask.shape)
            mask = (given != 0).astype(np.int32)
        self._check_last()
        if "attention_mask" in self.inputs:
            if given is not None or self.lengths or self.room > self.width:
                self.out["attention_mask"] = mask
        elif "segments" not in self.inputs:
            self._refuse_hiding("attention_mask", mask, self._counted(mask),
                                "open the engine with want_mask=True")
        if "segments" in self.inputs and "segments" not in self.out:
            places = self.out.get("positions")
            begins = np.zeros_like(mask) if places is None else (places == 0).astype(np.int32)
            begins[:, 0] = 1
            self.out["segments"] = np.cumsum(begins, axis=1, dtype=np.int32) * mask

    def _check_last(self) -> None:
        """Refuses padding without a padding id, by which classifiers find a row's last token."""
        labels = self.inputs.get("labels")
        ends = labels is not None and not labels.is_row and "lengths" not in self.inputs
        if self.inputs["input_ids"].pad == -1 and ends and (self.lengths or self.room > self.width):
            raise ArgumentError(
                f"input_ids: rows have {self.width} tokens, wanted {self.room}: the model has no "
                "pad_token_id, by which the last token of a padded row is found")

    def _counted(self, mask: Array) -> Array:
        """The tokens whose outputs matter."""
        labels, info = self.out.get("labels"), self.inputs.get("labels")
        counted: Array = mask != 0
        if labels is not None and info is not None and info.is_row:
            counted = labels != IGNORED
        elif info is not None and not info.is_row:
            there = self.out["input_ids"] != self.inputs["input_ids"].pad
            last = self.width - 1 - np.argmax(there[:, ::-1], axis=1)
            counted = np.arange(self.width) == last[:, None]
        return counted

    @staticmethod
    def _refuse_hiding(key: str, mask: Array, counted: Array, hint: str) -> None:
        """Refuses a mask that would change the result. A decoder's token sees itself and those
        before, so a mask that hides only later tokens than those that count is redundant."""
        hidden = np.maximum.accumulate(mask == 0, axis=1) & counted
        if np.any(hidden):
            row, token = _first(hidden)
            hides = int(np.argmax(mask[row] == 0))
            raise ArgumentError(f"{key}: 0 at {[row, hides]} hides a token that token {token}, "
                                f"which counts, would see here; {hint}")

    def _padded(self, info: InputInfo, array: Array) -> Array:
        if array.ndim == 1 and len(info.shape) == 1 and info.name == "positions":
            return array
        shape = (self.all_rows, *info.shape[1:])
        if array.shape == shape:
            return np.ascontiguousarray(array)
        out = np.full(shape, self._pad(info), dtype=info.dtype)
        out[tuple(slice(n) for n in array.shape)] = array
        return out

    def _blank(self, batch: Batch) -> None:
        """Gives rows of padding one visible token."""
        for name in ("attention_mask", "segments", "lengths"):
            if name in batch and self.all_rows > self.rows:
                blank = batch[name][self.rows:]
                blank.reshape(len(blank), -1)[:, :1] = 1
