# SPDX-License-Identifier: Apache-2.0
"""Tokenizers, and the numbered samples of a training."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_void_p
from os import PathLike
from typing import (
    TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union,
)

import numpy as np

from ._arrays import Arrays, as_array, describe, from_tensor
from ._handle import Handle
from ._library import (
    DatasetOptions, EngineOptions, Ids, RowInput, TokenizerOptions, TrainOptions, check, lib,
    path_bytes, take_text, texts,
)
from .errors import ArgumentError

if TYPE_CHECKING:
    from .engine import Engine

Path = Union[str, "PathLike[str]"]
Paths = Union[Path, Sequence[Path]]
Rows = Dict[str, Tuple["np.dtype[Any]", Tuple[int, ...]]]  # an input's dtype and shape of a row
IGNORED = -100  #: a label without a loss


def as_paths(paths: Optional[Paths]) -> Sequence[Path]:
    """One path or several, as several."""
    if paths is None:
        return []
    return [paths] if isinstance(paths, (str, PathLike)) else list(paths)


def shift_labels(labels: Any) -> "np.ndarray[Any, Any]":
    """Converts labels of Hugging Face's collators, which stand at their own tokens, to those of
    this library: the label of a place is the token after it, and the last place has none."""
    array = np.asarray(labels)
    if array.ndim < 1 or array.dtype.kind not in "iu":
        raise ArgumentError(f"labels: wanted rows of ids, got {array.dtype.name}{list(array.shape)}")
    shifted = np.full(array.shape, IGNORED, dtype=np.int32)
    shifted[..., :-1] = array[..., 1:]
    return shifted


def as_ids(name: str, value: Any, least: int = 0) -> "np.ndarray[Any, Any]":
    """Converts a row of whole numbers, at least `least`, to i32."""
    ids = as_array(name, from_tensor(value))
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise ArgumentError(f"{name}: wanted i32[n], got {describe(ids.dtype, ids.shape)}")
    if ids.size and not least <= int(ids.min()) <= int(ids.max()) < 2**31:
        raise ArgumentError(f"{name}: an id is below {least}, or beyond i32")
    return ids.astype(np.int32, copy=False)


class Tokenizer(Handle):
    """A tokenizer of the hub: a folder with tokenizer.json, vocab.json and merges.txt,
    tokenizer.model, vocab.txt, source.spm and target.spm, .., or one of these files. no_bos: leave
    out the tokens that it puts before a text (<s>, <bos>)."""

    _what = "tokenizer"

    _no_bos = False

    def __init__(self, path: Path, no_bos: bool = False) -> None:
        out = c_void_p()
        options = TokenizerOptions(no_bos=no_bos)
        check(lib.sw_tokenizer_open(path_bytes(path), byref(options), byref(out)))
        super().__init__(out, lib.sw_tokenizer_close)
        self._path: Optional[Path] = path
        self._no_bos = no_bos

    @classmethod
    def of_characters(cls, files: Paths, as_text: bool = False) -> "Tokenizer":
        """Opens a tokenizer of the characters in text files, in ascending order."""
        out = c_void_p()
        names = texts(as_paths(files))
        check(lib.sw_tokenizer_open_chars_of(names, len(names), as_text, byref(out)))
        self = cls.__new__(cls)
        Handle.__init__(self, out, lib.sw_tokenizer_close)
        self._path = None
        return self

    @classmethod
    def _lent(cls, setup: "Setup") -> Optional["Tokenizer"]:
        """Returns the tokenizer of a setup, which is closed with it, or None."""
        pointer = c_void_p(setup._ask("sw_train_setup_tokenizer"))
        if not pointer.value:
            return None
        self = cls.__new__(cls)
        Handle.__init__(self, pointer, lambda _: setup.close())
        self._path = None
        return self

    @property
    def vocab_size(self) -> int:
        """The highest id plus one, which is the number of rows of an embedding."""
        return int(self._ask("sw_tokenizer_vocab_size"))

    @property
    def eos(self) -> int:
        """The id that ends a text, or -1."""
        return int(self._ask("sw_tokenizer_eos"))

    def encode(self, text: str, special: bool = False) -> "np.ndarray[Any, Any]":
        """Returns the ids of a text, i32. special: adds the tokens of the tokenizer's template."""
        self._check()
        return self._encode("sw_tokenizer_encode", text, special)

    def encode_target(self, text: str, special: bool = False) -> "np.ndarray[Any, Any]":
        """Returns the ids of a text that a model writes. Marian's tokenizer has a model for
        each language; those of mBART and mBART-50 have codes for them."""
        self._check()
        return self._encode("sw_tokenizer_encode_target", text, special)

    def encode_prompt(self, text: str) -> "np.ndarray[Any, Any]":
        """Returns the ids of a text to continue, with the tokens that the template puts before
        it."""
        self._check()
        return self._encode("sw_tokenizer_encode_prompt", text)

    def _encode(self, function: str, text: str, *how: bool) -> "np.ndarray[Any, Any]":
        ids, data = Ids(), text.encode("utf-8", "surrogatepass")
        try:
            self._call(function, data, len(data), *how, byref(ids))
            made = np.zeros(ids.len, dtype=np.int32)
            if ids.len:
                ctypes.memmove(made.ctypes.data, ids.ptr, made.nbytes)
            return made
        finally:
            lib.sw_ids_fini(byref(ids))

    def decode(self, ids: Any, skip_special: bool = True) -> str:
        """Returns the text of a row of ids, or of one. Ids without a token are skipped."""
        self._check()
        array = as_ids("ids", np.atleast_1d(from_tensor(ids)), -2**31)
        out, length = c_void_p(), c_size_t()
        self._call("sw_tokenizer_decode", array.ctypes.data_as(POINTER(c_int32)), array.size,
                   skip_special, byref(out), byref(length))
        return take_text(out, length.value)

    def save(self, folder: Path) -> None:
        """Writes the tokenizer's files into an existing folder."""
        self._check()
        self._call("sw_tokenizer_save", path_bytes(folder))


class Setup(Handle):
    """The files of a training, read as by `spillway train` before an engine is opened. They
    determine the tokenizer, the chat template and the classes."""

    _what = "setup"

    def __init__(self, model: Path, files: Paths, values: Mapping[str, Any]) -> None:
        options = TrainOptions(model=path_bytes(model), has_seed=True)
        self._keep: List[Any] = [options]
        self._texts(options, "data", as_paths(files))
        for name, value in values.items():
            if name in ("name", "label_column", "source_prefix", "target_len"):
                self._set(options.task, name, value)
            elif name in ("labels", "text_columns"):
                self._texts(options.task, name, value)
            elif name in ("val_data", "sets"):
                self._texts(options, name, value)
            else:
                self._set(options, name, value)
        out = c_void_p()
        check(lib.sw_train_setup_open(byref(options), byref(out)))
        super().__init__(out, lib.sw_train_setup_close)

    @staticmethod
    def _set(struct: Any, name: str, value: Any) -> None:
        if value is not None:
            text = dict(struct._fields_)[name] is c_char_p
            setattr(struct, name, path_bytes(value) if text else value)

    def _texts(self, struct: Any, name: str, values: Sequence[Any]) -> None:
        array = texts(values)
        self._keep.append(array)
        setattr(struct, name, ctypes.cast(array, POINTER(c_char_p)))
        setattr(struct, "n_" + name, len(array))

    def fill(self, options: EngineOptions) -> None:
        """Sets the options of an engine that the data decides. Keep the setup open until it is
        open."""
        theirs = self._ask("sw_train_setup_engine").contents
        for name in ("sets", "n_sets"):
            setattr(options.config, name, getattr(theirs.config, name))
        for name in ("labels", "label_names", "has_pad_id", "pad_id"):
            setattr(options.model, name, getattr(theirs.model, name))
        options.model.vocab_size = options.model.vocab_size or theirs.model.vocab_size

    @property
    def steps(self) -> int:
        """Steps of the training, from steps or epochs; 0 if unknown."""
        theirs = self._ask("sw_train_setup_engine").contents
        said = [theirs.config.sets[i] for i in range(theirs.config.n_sets)]
        return int(next((edit[8:] for edit in said[::-1] if edit.startswith(b"--steps=")), b"0"))


class Dataset(Handle):
    """The numbered samples of text files, JSON lines and token shards (docs/data.md).

    Sample n depends on the files, the tokenizer, the seed and n alone. So the number of the next
    sample is the whole position of a training.
    """

    _what = "dataset"

    def __init__(self, files: Paths, *, seq_len: int, tokenizer: Optional[Tokenizer] = None,
                 val_files: Optional[Paths] = None, val_fraction: float = 0.0,
                 vocab_size: int = 0, seed: int = 0, as_text: bool = False,
                 packing: bool = False) -> None:
        names, val_names = texts(as_paths(files)), texts(as_paths(val_files))
        if tokenizer is not None:
            tokenizer._check()
        options = DatasetOptions(
            files=ctypes.cast(names, POINTER(c_char_p)), n_files=len(names),
            val_files=ctypes.cast(val_names, POINTER(c_char_p)), n_val_files=len(val_names),
            val_fraction=val_fraction, tokenizer=tokenizer._pointer if tokenizer else None,
            vocab_size=vocab_size, seq_len=seq_len, seed=seed, as_text=as_text, packing=packing)
        out = c_void_p()
        check(lib.sw_dataset_open(byref(options), byref(out)))
        super().__init__(out, lib.sw_dataset_close)
        given = ["input_ids", "labels"] + (["positions", "segments"] if packing else [])
        self._row: Rows = {name: (np.dtype(np.int32), (seq_len,)) for name in given}

    @classmethod
    def _of(cls, setup: "Setup", engine: "Engine") -> "Dataset":
        """Opens the dataset that `spillway train` would read for this engine."""
        out = c_void_p()
        setup._call("sw_train_setup_data", engine._pointer, engine._comm, byref(out))
        self = cls.__new__(cls)
        Handle.__init__(self, out, lib.sw_dataset_close)
        packing = "segments" in engine.inputs
        self._row = {info.name: (info.dtype, info.shape[1:]) for info in engine.inputs.values()
                     if packing or info.name != "positions"}
        return self

    def _n(self, split: str) -> int:
        if split not in ("train", "val"):
            raise ArgumentError(f'split "{split}": wanted "train" or "val"')
        return ("train", "val").index(split)

    def n_samples(self, split: str = "train") -> int:
        """Samples of one epoch."""
        self._check()
        return int(self._ask("sw_dataset_n_samples", self._n(split)))

    def __len__(self) -> int:
        return self.n_samples()

    @property
    def n_tokens(self) -> int:
        """Tokens of both splits together."""
        return int(self._ask("sw_dataset_n_tokens"))

    def rows(self, first: int, n: int, split: str = "train") -> Arrays:
        """Returns samples first .. first + n - 1 as a batch: input_ids and labels, [n, seq_len]
        i32, and with packing positions and segments. The engine's own dataset returns the inputs of
        its task. Training samples are numbered without end."""
        self._check()
        if n < 1:
            raise ArgumentError(f"{n} rows; wanted at least 1")
        batch: Arrays = {name: np.empty((n, *shape), dtype=dtype)
                         for name, (dtype, shape) in self._row.items()}
        inputs = (RowInput * len(batch))(
            *[RowInput(name.encode(), array.ctypes.data) for name, array in batch.items()])
        self._call("sw_dataset_fetch_inputs", self._n(split), first, n, inputs, len(batch))
        return batch


class Loader:
    """The micro-batches of this rank, in the order in which `spillway train` takes them.

    An iteration starts at the engine's position and ends after an epoch of whole steps. The next
    iteration continues after it.
    """

    def __init__(self, engine: "Engine", dataset: Dataset) -> None:
        self._engine, self.dataset = engine, dataset

    def __len__(self) -> int:
        e = self._engine
        e._check()
        step = e.train_micro_batch_size * e.micro_batches
        return max(self.dataset.n_samples() // step, 1) * e.local_micro_batches

    def __iter__(self) -> Iterator[Arrays]:
        self._engine._check()
        return self._batches()

    def _batches(self) -> Iterator[Arrays]:
        e = self._engine
        size, total, n = e.train_micro_batch_size, e.micro_batches, e.local_micro_batches
        base = e.global_samples
        for i in range(len(self)):
            e._check()
            first = base + i // n * size * total  # of the step
            yield self.dataset.rows(first + (i % n * e._batch_ranks + e._batch_rank) * size, size)

    def step(self) -> Sequence[Arrays]:
        """Returns the micro-batches of the next step."""
        e = self._engine
        size, base = e.train_micro_batch_size, e.global_samples
        return [self.dataset.rows(base + (j * e._batch_ranks + e._batch_rank) * size, size)
                for j in range(e.local_micro_batches)]
