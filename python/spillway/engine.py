# SPDX-License-Identifier: Apache-2.0
"""The engine: a model, a configuration and a plan, ready to train."""

from __future__ import annotations

import ctypes
import json as _json
import math
import operator
import os
import shutil
import weakref
from collections.abc import Iterator as AbstractIterator, Mapping as AbstractMapping
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_float, c_int, c_int32, c_int64
from ctypes import c_void_p
from dataclasses import dataclass
from types import TracebackType
from typing import (
    Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union,
)

import numpy as np

from . import _library
from ._arrays import Arrays, as_array, batch_of, batches_of, describe, numpy_dtype
from ._handle import Handle
from ._library import PENDING, EngineOptions, Sampling, SaveOptions, check, lib, path_bytes
from ._library import take_text, texts
from .batch import Batch, InputInfo, is_hf
from .data import IGNORED, Dataset, Loader, Path, Paths, Setup, Tokenizer, as_ids, as_paths
from .errors import ArgumentError, ClosedError, ConfigError, SpillwayError
from .group import Group

Config = Union[None, Path, Mapping[str, Any]]
MicroBatch = Mapping[str, Any]
# Where each keyword goes in struct sw_engine_options.
_FIELDS: Dict[str, Tuple[str, str]] = {
    "adapter": ("model", "adapter"), "task": ("model", "task"),
    "vocab_size": ("model", "vocab_size"), "seq_len": ("inputs", "seq_len"),
    "target_len": ("inputs", "target_len"), "want_mask": ("inputs", "mask"),
    "device": ("run", "device"), "batch_ranks": ("run", "batch_ranks"),
    "train": ("train", "wanted"), "keep_gradients": ("train", "keep_gradients"),
    "want_eval": ("evaluate", "loss"), "want_logits": ("evaluate", "logits"),
    "plan_only": ("plan", "only"), "resume_from": ("plan", "resume_from"),
}
_EXPORT_DTYPES = {None: _library.DTYPE_COUNT, "float32": 0, "f32": 0, "bfloat16": 2, "bf16": 2,
                  "float16": 3, "f16": 3}


@dataclass(frozen=True)
class StepReport:
    """The result of an optimizer step."""

    step: int  #: steps so far, skipped ones included
    applied: int  #: steps applied so far
    samples: int  #: samples so far, of all ranks
    loss: float
    grad_norm: float  #: norm of the gradient before clipping
    lr: float
    loss_scale: float
    skipped: bool  #: True if gradients overflowed, so that nothing changed
    targets: float  #: labels that counted


def _config_text(config: Config) -> Optional[str]:
    """The JSON text of a configuration that is not a file."""
    if config is None or isinstance(config, (str, os.PathLike)):
        return None
    if not isinstance(config, AbstractMapping):
        raise ArgumentError(f"config: wanted a path or a dict, got {type(config).__name__}")
    try:
        return _json.dumps(dict(config), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"config: {error}") from None


def _count(labels: Any) -> int:
    if isinstance(labels, bool) or not isinstance(labels, int):
        raise ArgumentError(f"labels: wanted names, or how many, got {type(labels).__name__}")
    return _whole("labels", labels, 0)


def _whole(name: str, value: Any, least: int) -> int:
    """A whole number that fits C's types. ctypes would truncate a larger one silently."""
    number = operator.index(value)
    if not least <= number < 2**63:
        raise ArgumentError(f"{name} is {number}; wanted {least} .. {2**63 - 1}")
    return number


def _share(name: str, value: float, most: float) -> float:
    if not 0 <= value <= most or math.isinf(value):
        limit = "a number, not negative" if math.isinf(most) else f"0 .. {most:g}"
        raise ArgumentError(f"{name} is {value}; wanted {limit}")
    return value


def _refuse_object(name: str, value: Any) -> None:
    """A model or a tokenizer is given by its folder, never as an object that another library
    holds."""
    if isinstance(value, (str, bytes, os.PathLike)):
        return
    kind, wanted = type(value).__name__, "a path or a name"
    if hasattr(value, "save_pretrained"):
        raise ArgumentError(f"{name}: wanted {wanted}, got an object of {kind}; save it first, "
                            f"{name}.save_pretrained(folder), and pass the folder")
    if hasattr(value, "state_dict"):
        raise ArgumentError(f"{name}: wanted {wanted}, got an object of {kind}; save it first as a "
                            "Hugging Face folder, save_pretrained(folder) of a model of "
                            "transformers, and pass the folder")
    raise ArgumentError(f"{name}: wanted {wanted}, got {kind}")


@dataclass(frozen=True)
class _Length:
    """lr, steps and epochs, as in `spillway train`. They fill in values that the configuration
    leaves open."""

    lr: Optional[float]
    steps: Optional[int]
    epochs: Optional[float]

    def check(self, trains: bool, has_data: bool) -> None:
        """Refuses values that contradict each other or the engine."""
        for name, value in (("lr", self.lr), ("steps", self.steps), ("epochs", self.epochs)):
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
                raise ArgumentError(f"{name}: wanted a number, got {type(value).__name__}")
            if not trains:
                raise ArgumentError(f"{name}: the engine is opened without training")
        if isinstance(self.steps, (float, np.floating)):
            raise ArgumentError(f"steps is {self.steps}; wanted a whole number")
        if self.steps is not None:
            _whole("steps", self.steps, 1)
        if self.epochs is None:
            return
        if self.steps is not None:
            raise ArgumentError("steps and epochs exclude each other")
        if not has_data:
            raise ArgumentError("epochs are passes over training_data, but none is given")
        if not 0 < self.epochs < math.inf:
            raise ArgumentError(f"epochs is {self.epochs}; wanted a number above 0")

    def edits(self, steps: Optional[int] = None) -> List[str]:
        """The edits of the configuration. steps: the number of steps that the epochs amount to."""
        steps = self.steps if steps is None else steps
        said = [] if self.lr is None else [f"--lr={float(self.lr)!r}"]
        return said + ([] if steps is None else [f"--steps={operator.index(steps)}"])

    def steps_for(self, samples: int, engine: "Engine") -> int:
        """The steps of the epochs. The last batch of an epoch may be partial, as in Trainer."""
        batch = engine.micro_batches * engine.train_micro_batch_size
        return _whole("epochs: the number of steps",
                      math.ceil((self.epochs or 0) * -(-samples // batch)), 1)


class _Options:
    """struct sw_engine_options, with the memory that it borrows. more: edits besides sets."""

    def __init__(self, model: Path, config: Config, sets: Optional[Mapping[str, Any]],
                 values: Mapping[str, Any], more: Sequence[str] = ()) -> None:
        text = _config_text(config)
        #: edits of the configuration, without the defaults of a training
        self.said = [f"{key}={_json.dumps(value)}" for key, value in (sets or {}).items()]
        self.said += more
        default = [lib.sw_train_default_optimizer()] if values.get("train", True) else []
        edits = texts([*self.said, *default])
        labels = values.get("labels")
        names = texts(labels if isinstance(labels, (list, tuple)) else [])
        self.keep: List[Any] = [edits, names]
        options = EngineOptions()
        options.model.path = path_bytes(model)
        options.config.sets = ctypes.cast(edits, POINTER(c_char_p))
        options.config.n_sets = len(edits)
        if text is not None:
            options.config.text = text.encode()
        elif config is not None:
            options.config.path = path_bytes(config)
        if labels is not None:
            options.model.labels = len(names) or _count(labels)
            if len(names):
                options.model.label_names = ctypes.cast(names, POINTER(c_char_p))
        options.train.wanted = True
        options.seed = _whole("seed", values.get("seed") or 0, 0)
        tokens = _whole("generate_tokens", values.get("generate_tokens") or 0, -1)
        options.generate.wanted = tokens != 0
        options.generate.tokens = max(tokens, 0)
        for name in _FIELDS:
            self._set(options, name, values.get(name))
        self.struct = options

    @staticmethod
    def _set(options: EngineOptions, name: str, value: Any) -> None:
        if value is None:
            return
        part, field = _FIELDS[name]
        struct = getattr(options, part)
        kind = dict(struct._fields_)[field]
        if kind is c_char_p:
            value = path_bytes(value)
        elif kind is not c_bool:
            value = _whole(name, value, 0)
        setattr(struct, field, value)


def _open_world(deadline: float) -> c_void_p:
    out = c_void_p()
    check(lib.sw_world_open(deadline, byref(out)))
    return out


def _leave_world(world: c_void_p, status: int) -> None:
    """Leaves the ranks, so that the others do not wait for this one."""
    if world.value:
        if status < 0:
            lib.sw_comm_abort(world, status)
        lib.sw_comm_close(world, status < 0)
        world.value = None


def _end_world(world: c_void_p, process: int) -> None:
    if os.getpid() == process:
        _leave_world(world, 0)


class _Optimizer:
    """The part of an optimizer that DeepSpeed's loops read. The engine updates the weights
    itself."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    @property
    def param_groups(self) -> List[Dict[str, Any]]:
        """One group, with the rate of the last step."""
        return [{"lr": self._engine.get_lr()[0]}]


class _Scheduler:
    """The part of a schedule that DeepSpeed's loops read; the `scheduler` block defines the
    schedule."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    def get_last_lr(self) -> List[float]:
        """The rate of the last step, in a list."""
        return self._engine.get_lr()


class _Rules(Handle):
    """Stop tokens and rules of texts, from the model's files."""

    _what = "rules of a text"

    def __init__(self, model: bytes, tokenizer: Optional[Tokenizer], sampling: Sampling) -> None:
        out = c_void_p()
        if tokenizer is not None:
            tokenizer._check()
        words = tokenizer._pointer if tokenizer is not None else None
        check(lib.sw_writing_open(model, words, byref(sampling), byref(out)))
        super().__init__(out, lib.sw_writing_close)


class Engine(Handle):
    """A model, a configuration and a plan, opened by :func:`initialize`. Close it, or use
    `with`."""

    _what = "engine"

    def __init__(self, options: _Options, world: c_void_p) -> None:
        out = c_void_p()
        self._comm = world
        self.rank = int(lib.sw_comm_rank(world)) if world.value else 0  #: number among all ranks
        self.world_size = int(lib.sw_comm_size(world)) if world.value else 1
        status = lib.sw_initialize(byref(options.struct), byref(out))
        if status < 0:
            try:
                check(status)
            finally:
                _leave_world(world, status)
        # The oldest finalizer runs last, after that of the engine. At the end of Python it does not
        # run: MPI would wait for ranks that wait for this one. The end of the process leaves them.
        self._leaving = weakref.finalize(self, _end_world, world, os.getpid())
        self._leaving.atexit = False
        super().__init__(out, lib.sw_close)
        self.tokenizer: Optional[Tokenizer] = None
        self._words: Optional[Path] = None  # where one is, that is opened when it is asked for
        model = bytes(options.struct.model.path)  # the working directory may change
        self._model = os.path.abspath(model) if os.path.exists(model) else model
        self._rules: Optional[_Rules] = None
        self._rules_of: Tuple[Any, ...] = ()  # what they were opened for
        self._no_bos = False
        self._owned: List[Handle] = []
        self._dataset: Optional[Dataset] = None
        self.total_steps: Optional[int] = None  #: steps of the whole training; None if unknown
        self._chat_template: Optional[Path] = None  # a file in place of the tokenizer's
        self.last_step: Optional[StepReport] = None  #: report of the last step
        self.micro_batches = int(lib.sw_engine_micro_batches(out))  #: per step, all ranks
        self.local_micro_batches = int(lib.sw_engine_local_micro_batches(out))  #: this rank
        self.train_micro_batch_size = int(lib.sw_engine_micro_batch_size(out))  #: samples
        self.seq_len = int(lib.sw_engine_seq_len(out))  #: tokens of a row
        self.vocab_size = int(lib.sw_engine_vocab(out))
        self.n_parameters = int(lib.sw_engine_parameters(out))
        self.seed = int(lib.sw_engine_seed(out))
        generate = options.struct.generate
        room = int(generate.tokens)
        self._room = room or (self.seq_len if generate.wanted else 0)  # of prompt and continuation
        self.inputs: Dict[str, InputInfo] = self._read_inputs()  #: tensors of a micro-batch
        self._n_backward = 0  # of the step under way
        me, n = c_int(), c_int()
        lib.sw_engine_batch_axis(out, byref(me), byref(n))
        self._batch_rank, self._batch_ranks = me.value, n.value  # who divide the micro-batches

    # ---- opening and closing ----

    def _read_inputs(self) -> Dict[str, InputInfo]:
        found = {}
        for i in range(self._ask("sw_engine_n_inputs")):
            info, hf = _library.InputInfo(), _library.HfInput()
            self._call("sw_engine_input", i, byref(info))
            shape = tuple(info.shape.dims[: info.shape.rank])
            name = info.name.decode()
            self._call("sw_engine_hf_input", i, byref(hf))
            found[name] = InputInfo(name, numpy_dtype(info.dtype), shape, info.optional,
                                    hf.name.decode(), hf.pad, hf.start, hf.shifted)
        return found

    def close(self) -> None:
        """Releases its memory. Closing again does nothing."""
        super().close()
        self._rules = None
        for item in reversed(self._owned):
            item.close()
        self._leaving()

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        if kind is not None and self._comm.value and not self.closed:
            lib.sw_comm_abort(self._comm, -9)
        self.close()

    def __iter__(self) -> Iterator[Any]:
        """Yields engine, optimizer, loader and scheduler, as DeepSpeed's initialize returns
        them."""
        self._check()
        return iter((self, self.optimizer, self.training_dataloader, self.lr_scheduler))

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"step {self.global_steps}"
        return f"<spillway.Engine, {self.n_parameters} parameters, {state}>"

    # What refers to the engine is made when it is asked for: an engine that nobody else holds is
    # closed at once, and not when the next cycles are looked for.

    def group(self, axis: str) -> Group:
        """The ranks that differ from this one along one axis of spillway.mesh only: "pipe", "data",
        "expert", "context" or "tensor". All ranks of the engine call it."""
        self._check()
        if not isinstance(axis, str):
            raise ArgumentError(f"axis: wanted a name, got {type(axis).__name__}")
        return Group(self, axis)

    def _exchange(self, name: str, *arguments: Any) -> None:
        """Exchanges with a communicator that the engine lends."""
        check(self._guarded(name, *arguments))

    @property
    def optimizer(self) -> _Optimizer:
        """An object with the learning rate, for loops that read it."""
        self._check()
        return _Optimizer(self)

    @property
    def lr_scheduler(self) -> _Scheduler:
        """An object with the learning rate, for loops that read it from a schedule."""
        self._check()
        return _Scheduler(self)

    @property
    def training_dataloader(self) -> Optional[Loader]:
        """The micro-batches of training_data, or None without training_data."""
        self._check()
        return Loader(self, self._dataset) if self._dataset is not None else None

    # ---- batches ----

    def _taken(self, batch: MicroBatch) -> MicroBatch:
        """Converts a batch of transformers' collators; returns others unchanged."""
        return Batch.from_hf(self, batch) if is_hf(self.inputs, batch) else batch

    def _arrays(self, batch: MicroBatch) -> Arrays:
        if not isinstance(batch, AbstractMapping):
            raise ArgumentError(f"a batch is a dict of arrays by name ({', '.join(self.inputs)}); "
                                f"got {type(batch).__name__}")
        batch, arrays = self._taken(batch), {}
        for name, value in batch.items():
            if name not in self.inputs:
                raise ArgumentError(f"{name}: this model takes {', '.join(self.inputs)}")
            arrays[name] = as_array(name, value)
        ids, labels = arrays.get("input_ids"), arrays.get("labels")
        shifted = "labels" in arrays and self.inputs["labels"].shifted
        if (shifted and not isinstance(batch, Batch) and ids is not None and labels is not None
                and ids.shape == labels.shape):
            _refuse_unshifted(ids, labels)
        return arrays

    def _split(self, batch: MicroBatch) -> List[Arrays]:
        """Splits a batch into the micro-batches of this rank, as views of its arrays."""
        arrays, n = self._arrays(batch), self.local_micro_batches
        if n == 1:
            return [arrays]
        parts: List[Arrays] = [{} for _ in range(n)]
        for name, array in arrays.items():
            info = self.inputs[name]
            if info.optional and len(info.shape) == 1 and array.shape == info.shape:
                for part in parts:  # places of tokens: the same for all rows
                    part[name] = array
                continue
            wanted = (n * info.shape[0], *info.shape[1:])
            if array.shape != wanted or array.dtype != info.dtype:
                raise ArgumentError(f"{name}: wanted {describe(info.dtype, wanted)}, {n} "
                                    f"micro-batches of {info.shape[0]}, got "
                                    f"{describe(array.dtype, array.shape)}")
            for k, part in enumerate(parts):
                part[name] = array[k * info.shape[0]:(k + 1) * info.shape[0]]
        return parts

    def _micro_batches(self, batch: Union[MicroBatch, Iterable[MicroBatch]]) -> List[Arrays]:
        if isinstance(batch, AbstractMapping):
            return self._split(batch)
        if isinstance(batch, (list, tuple)):
            return [self._arrays(one) for one in batch]
        if isinstance(batch, AbstractIterator):
            taken: List[Arrays] = []
            for one in batch:
                taken.append(self._arrays(one))
                if len(taken) == self.local_micro_batches:
                    return taken
            raise ArgumentError(f"the iterator ended after {len(taken)} of "
                                f"{self.local_micro_batches} micro-batches of a step")
        raise ArgumentError(f"a batch is a dict of arrays, or several; got {type(batch).__name__}")

    # ---- training ----

    def _compute(self, name: str, *arguments: Any) -> None:
        """Runs a part of a step. A failure abandons the step; a refusal does not."""
        try:
            self._call(name, *arguments)
        except (ArgumentError, ConfigError):
            raise
        except SpillwayError:
            self._n_backward = 0
            raise

    def _took(self, report: "_library.StepReport") -> StepReport:
        self._n_backward = 0
        self.last_step = StepReport(
            report.step, report.applied, report.samples, report.loss, report.grad_norm, report.lr,
            report.loss_scale, report.skipped, report.targets)
        return self.last_step

    def train_batch(self, batch: Union[MicroBatch, Iterable[MicroBatch], None] = None) -> float:
        """Runs one optimizer step and returns its loss; `last_step` has the rest.

        batch: a dict of arrays that hold all micro-batches of this rank along the first dimension;
        or a list with one dict per micro-batch; or an iterator over micro-batches, which is
        advanced by one step; or None for the next micro-batches of `training_data`.
        """
        self._check()
        if batch is None:
            loader = self.training_dataloader
            if loader is None:
                raise ArgumentError("train_batch: neither a batch nor training_data is given")
            batch = loader.step()
        array, kept = batches_of(self._micro_batches(batch))
        report = _library.StepReport()
        self._compute("sw_train_batch", array, len(kept), byref(report))
        return self._took(report).loss

    def forward(self, batch: MicroBatch) -> float:
        """Computes and returns the loss of one micro-batch."""
        self._check()
        loss = c_double()
        one = batch_of(self._arrays(batch))
        self._compute("sw_forward", byref(one), byref(loss))
        return loss.value

    def __call__(self, batch: MicroBatch) -> float:
        """The same as :meth:`forward`."""
        return self.forward(batch)

    def backward(self, loss: Optional[float] = None) -> None:
        """Adds the gradients of the micro-batch of the last forward. Without clipping, the last one
        of a step may already update weights. `loss` is accepted and ignored."""
        self._compute("sw_backward")
        self._n_backward += 1

    def is_gradient_accumulation_boundary(self) -> bool:
        """Whether :meth:`step` would update the weights, because all micro-batches are done."""
        self._check()
        return self._n_backward >= self.local_micro_batches

    def step(self) -> Optional[StepReport]:
        """Ends a step after its last backward: updates the weights that backward has not updated.
        Called earlier, it does nothing and returns None, so it may be called after every
        backward."""
        self._check()
        if 0 < self._n_backward < self.local_micro_batches:
            return None
        report = _library.StepReport()
        self._compute("sw_step", byref(report))
        return self._took(report)

    @property
    def global_steps(self) -> int:
        """Optimizer steps so far."""
        return int(self._ask("sw_engine_step"))

    @property
    def global_samples(self) -> int:
        """Samples so far, of all ranks."""
        return int(self._ask("sw_engine_samples"))

    def get_lr(self) -> List[float]:
        """The rate of the last step, in a list as in DeepSpeed; 0 before the first one."""
        self._check()
        return [self.last_step.lr if self.last_step else 0.0]

    def get_global_grad_norm(self) -> Optional[float]:
        """The gradient norm of the last step, before clipping."""
        self._check()
        return self.last_step.grad_norm if self.last_step else None

    # ---- looking ----

    def evaluate(self, batch: MicroBatch) -> Tuple[float, float]:
        """Returns the sum of the losses and the number of targets of one micro-batch, without
        dropout. A loss of several terms counts the targets of the first one, and the sum is the
        loss times their number. Needs `want_eval`."""
        self._check()
        total, count = c_double(), c_double()
        one = batch_of(self._arrays(batch))
        self._call("sw_evaluate", byref(one), byref(total), byref(count))
        return total.value, count.value

    def logits(self, batch: MicroBatch) -> "np.ndarray[Any, Any]":
        """Returns logits as f32 [rows, tokens, vocabulary], or [rows, labels] for a classifier. The
        task "tokens" gives [rows, tokens, labels], "answers" those of the start [rows, tokens],
        "embed" hidden states [rows, tokens, width]. For a batch of transformers, padding is cut
        off. Needs `want_logits`."""
        self._check()
        batch = self._taken(batch) if isinstance(batch, AbstractMapping) else batch
        one = batch_of(self._arrays(batch))
        shape, tokens = _library.Shape(), c_int()
        self._call("sw_logits_shape", byref(shape), byref(tokens))
        out = np.empty(tuple(shape.dims[:shape.rank]), dtype=np.float32)
        self._call("sw_logits", byref(one), out.ctypes.data_as(POINTER(c_float)))
        if not isinstance(batch, Batch):
            return out
        return out[:batch.rows, :batch.columns] if tokens.value == 1 else out[:batch.rows]

    @property
    def parameters(self) -> Dict[str, Tuple[int, ...]]:
        """Names and shapes of the parameters."""
        found = {}
        for i in range(self._ask("sw_engine_n_tensors")):
            name, shape = c_char_p(), _library.Shape()
            self._call("sw_engine_tensor", i, byref(name), byref(shape))
            assert name.value is not None
            found[name.value.decode()] = tuple(shape.dims[: shape.rank])
        return found

    def _shape_of(self, name: str) -> Tuple[int, ...]:
        found = self.parameters
        if name not in found:
            raise ArgumentError(f'no parameter "{name}" in this model')
        return found[name]

    def get_weight(self, name: str) -> "np.ndarray[Any, Any]":
        """Returns a parameter as f32."""
        out = np.empty(self._shape_of(name), dtype=np.float32)
        self._call("sw_get_weight", name.encode(), 0, out.size,
                   out.ctypes.data_as(POINTER(c_float)))
        return out

    def set_weight(self, name: str, value: Any) -> None:
        """Sets a parameter from f32 of its shape."""
        self._check()
        array, shape = as_array(name, value), self._shape_of(name)
        if array.dtype != np.float32 or array.shape != shape:
            raise ArgumentError(f"{name}: wanted {describe(np.float32, shape)}, got "
                                f"{describe(array.dtype, array.shape)}")
        self._call("sw_set_weight", name.encode(), 0, array.size,
                   array.ctypes.data_as(POINTER(c_float)))

    def state_dict(self) -> Dict[str, "np.ndarray[Any, Any]"]:
        """Returns all parameters as f32, under the names of the model's own state_dict. For torch
        use `{name: torch.from_numpy(a) for name, a in ..}`."""
        return {name: self.get_weight(name) for name in self.parameters}

    def load_state_dict(self, state: Mapping[str, Any],
                        strict: bool = True) -> Tuple[List[str], List[str]]:
        """Sets parameters from arrays or torch tensors of any floating dtype. Returns the missing
        and the unknown names. strict: refuses such names and changes nothing then. Exception: a
        tensor that shares the memory of a parameter (a tied head) is accepted."""
        shapes = self.parameters
        taken, memory = {}, set()
        for name, value in state.items():
            if name in shapes:
                array = _as_weight(name, value, shapes[name])
                taken[name] = array
                memory.add(_address(value))
        missing = [name for name in shapes if name not in taken]
        unknown = [name for name, value in state.items()
                   if name not in shapes and _address(value) not in memory]
        if strict and (missing or unknown):
            raise ArgumentError("load_state_dict: " + "; ".join(
                f"{what} {', '.join(names[:3])}{f' and {len(names) - 3} more' * (len(names) > 3)}"
                for what, names in (("missing", missing), ("unknown", unknown)) if names))
        for name, array in taken.items():
            self.set_weight(name, array)
        return missing, unknown

    def gradient(self, name: str) -> "np.ndarray[Any, Any]":
        """Returns a gradient of the last micro-batch. Needs `keep_gradients`."""
        out = np.empty(self._shape_of(name), dtype=np.float32)
        self._call("sw_gradient", name.encode(), out.ctypes.data_as(POINTER(c_float)))
        return out

    def plan(self, instructions: bool = False, json: bool = False) -> Any:
        """Returns the plan as text, or with json as a dict. instructions: list every
        instruction."""
        out = c_void_p()
        self._call("sw_plan_text", instructions, json, byref(out))
        text = take_text(out)
        return _json.loads(text) if json else text

    def tier_bytes(self) -> Dict[str, int]:
        """Bytes that the plan uses on each tier."""
        return {name: int(self._ask("sw_engine_tier_bytes", i))
                for i, name in enumerate(("device", "host", "disk"))}

    # ---- files ----

    def save_checkpoint(self, folder: Path, *, val_loss: float = math.nan,
                        keep_last: int = 0) -> None:
        """Writes a checkpoint into a folder of checkpoints. keep_last: number of checkpoints to
        keep, besides the one of least val_loss; 0 keeps all."""
        self._check()
        options = SaveOptions(keep_last=min(_whole("keep_last", keep_last, 0), 2**31 - 1),
                              val_loss=val_loss, metric_value=math.nan)
        self._call("sw_save", path_bytes(folder), byref(options))

    def load_checkpoint(self, folder: Path) -> bool:
        """Loads the newest complete checkpoint of a folder, or the given checkpoint. Returns False,
        and changes nothing, if the folder has none."""
        self._check()
        status = self._call("sw_load", path_bytes(folder))
        self._n_backward = 0
        return status != PENDING

    def export(self, folder: Path, dtype: Optional[str] = None) -> None:
        """Writes a Hugging Face folder, with the engine's tokenizer if it has one, without a model
        card. dtype: "float32", "bfloat16" or "float16" (default: the model's, float32 for
        presets)."""
        self._check()
        if dtype not in _EXPORT_DTYPES:
            raise ArgumentError(f'dtype "{dtype}": wanted float32, bfloat16 or float16')
        self._call("sw_export", path_bytes(folder), _EXPORT_DTYPES[dtype])
        if self.tokenizer is not None and self.rank == 0:
            self.tokenizer.save(folder)
            if self._chat_template is not None:
                shutil.copyfile(self._chat_template, os.path.join(folder, "chat_template.jinja"))

    # ---- generation ----

    def generate(self, prompt: Any, tokens: int = 100, *, temperature: float = 0.0,
                 top_k: int = 0, top_p: float = 0.0, seed: int = 0,
                 stop: Optional[Sequence[int]] = None) -> Any:
        """Continues a prompt by at most `tokens` tokens. An encoder-decoder reads the prompt, with
        the tokenizer's template, and writes a text of its own. A text gives a text, ids give an
        array of ids.

        Needs `generate_tokens` of at least the length of prompt and continuation. temperature 0
        takes the likeliest token. The model's generation_config.json is followed as `spillway
        generate` follows it, except for its maximum lengths. stop: ids that end the text (default:
        those of that file, or else the tokenizer's end of text).
        """
        self._check()
        as_text = isinstance(prompt, str)
        if as_text and self.tokenizer is None and self._words is not None:
            self.tokenizer = Tokenizer(self._words, self._no_bos)
            self._owned.append(self.tokenizer)
        tokenizer = self.tokenizer
        if as_text and tokenizer is None:
            raise ArgumentError("generate: a text needs a tokenizer; pass one to initialize")
        if as_text and tokenizer:
            reads = any(info.start >= 0 for info in self.inputs.values())  # an encoder-decoder
            ids = tokenizer.encode(prompt, True) if reads else tokenizer.encode_prompt(prompt)
        else:
            ids = prompt
        ids = as_ids("prompt", ids)
        tokens = _whole("tokens", tokens, 1)
        sampling = Sampling(
            temperature=_share("temperature", temperature, math.inf),
            top_k=_whole("top_k", top_k, 0), top_p=_share("top_p", top_p, 1),
            seed=_whole("seed", seed, 0), stop_id=-1)
        rules = self._rules_for(tokenizer, sampling)  # sampling points into them
        rules._ask("sw_writing_apply", ids.size, stop is None, byref(sampling))
        if stop is not None:
            stops = as_ids("stop", list(stop))
            sampling.stop_ids = stops.ctypes.data_as(POINTER(c_int32))
            sampling.n_stop_ids = stops.size
        # more than there is room for is refused before anything is written
        out, n = np.empty(min(tokens, max(self._room, 1)), dtype=np.int32), c_int64()
        pointer = POINTER(c_int32)
        self._call("sw_generate", ids.ctypes.data_as(pointer), ids.size, tokens, byref(sampling),
                   out.ctypes.data_as(pointer), byref(n), None)
        made = out[: n.value].copy()
        return tokenizer.decode(made) if as_text and tokenizer else made

    def _rules_for(self, tokenizer: Optional[Tokenizer], sampling: Sampling) -> _Rules:
        """Keeps the rules for the next call, so that they are read, and warned about, once."""
        wanted = (tokenizer, sampling.temperature > 0, sampling.top_k > 0, sampling.top_p > 0)
        if self._rules is None or self._rules_of != wanted:
            self._rules, self._rules_of = _Rules(self._model, tokenizer, sampling), wanted
        return self._rules


def _address(value: Any) -> int:
    """Address of the data of a tensor or an array."""
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    return int(value.ctypes.data) if isinstance(value, np.ndarray) else id(value)


def _as_weight(name: str, value: Any, shape: Tuple[int, ...]) -> "np.ndarray[Any, Any]":
    """Converts a torch tensor, or anything that numpy accepts, to f32. torch is not imported."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().float().numpy()
    array = np.asarray(value)
    if array.dtype.kind != "f" or array.shape != shape:
        raise ArgumentError(f"{name}: wanted {describe(np.float32, shape)}, got "
                            f"{describe(array.dtype, array.shape)}")
    return array.astype(np.float32, copy=False)


def _refuse_unshifted(ids: "np.ndarray[Any, Any]", labels: "np.ndarray[Any, Any]") -> None:
    """Refuses labels that equal their own tokens: Hugging Face's models shift them later. A text
    that repeats a token has such labels, too, but there they are also the next tokens."""
    counted = labels != IGNORED
    if np.count_nonzero(counted) < 2 or not np.array_equal(labels[counted], ids[counted]):
        return
    if np.any((labels[..., :-1] != ids[..., 1:]) & counted[..., :-1]):
        raise ArgumentError("labels equal input_ids, but the label of a place is the token after "
                            "it; convert Hugging Face's labels by spillway.shift_labels")


def _place_of_words(model: Path, adapter: Optional[Path]) -> Optional[Path]:
    """The folder with a tokenizer: the adapter's if it has one, else the model's."""
    for folder in (adapter, model):
        if folder is not None and lib.sw_tokenizer_is_there(path_bytes(folder)):
            return folder
    return None


def _task_labels(labels: Union[None, int, Sequence[str]]) -> List[str]:
    """Labels in the form of --labels: names, or their number."""
    if labels is None:
        return []
    return list(labels) if isinstance(labels, (list, tuple)) else [str(_count(labels))]


def initialize(
    model: Path,
    config: Config = None,
    *,
    training_data: Union[None, Paths, Dataset] = None,
    validation_data: Optional[Paths] = None,
    tokenizer: Union[None, Path, Tokenizer] = None,
    sets: Optional[Mapping[str, Any]] = None,
    lr: Optional[float] = None,
    steps: Optional[int] = None,
    epochs: Optional[float] = None,
    adapter: Optional[Path] = None,
    task: Optional[str] = None,
    labels: Union[None, int, Sequence[str]] = None,
    text_column: Union[None, str, Sequence[str]] = None,
    label_column: Optional[str] = None,
    source_prefix: Optional[str] = None,
    chat_template: Optional[Path] = None,
    chat_date: Optional[str] = None,
    loss_on: Optional[str] = None,
    as_text: bool = False,
    no_bos: bool = False,
    seq_len: int = 0,
    target_len: int = 0,
    vocab_size: int = 0,
    seed: int = 42,
    device: Optional[str] = None,
    train: bool = True,
    want_eval: bool = False,
    want_logits: bool = False,
    want_mask: bool = False,
    keep_gradients: bool = False,
    generate_tokens: int = 0,
    resume_from: Optional[Path] = None,
    deadline: float = 300.0,
) -> Engine:
    """Plans everything, allocates the memory, and reads or draws the weights.

    model: a Hugging Face folder, a config.json, or a preset ("gpt2-tiny").
    config: ds_config.json as a path or a dict. sets: edits of it, {"spillway.threads": 2}. A
    configuration without an optimizer means AdamW, with the values of transformers' Trainer.
    lr: the learning rate if the configuration says "auto" or has no optimizer.
    steps: steps of the whole training, for schedules that are "auto". epochs: the same, as passes
    over training_data. A contradiction with the configuration is refused. None of them ends a loop;
    `total_steps` has the number of steps.
    training_data: files that `spillway train --data` reads, of any task, or a Dataset. The engine
    then has a `training_dataloader`, and train_batch() takes its batches from it. text_column,
    chat_template, loss_on and others say how files are read, as the flags of the same names do.
    validation_data: files of the split "val" of `training_dataloader.dataset`.
    tokenizer: as --tokenizer, for generation from text and for training_data.
    train: False opens an engine for evaluation, logits and generation only.
    want_eval, want_logits, keep_gradients, generate_tokens: required by evaluate, logits, gradient
    and generate. want_mask: batches have an attention_mask. The others mean the same as the flags
    of `spillway train` of the same names.

    A process that `spillway launch`, mpirun or srun started is one of several ranks. Every rank
    must make the same calls in the same order.

    Returns the engine. `engine, optimizer, loader, scheduler = spillway.initialize(..)` works, too.
    """
    _refuse_object("model", model)
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        _refuse_object("tokenizer", tokenizer)
    reading = dict(text_columns=as_paths(text_column), label_column=label_column,
                   source_prefix=source_prefix, chat_template=chat_template, chat_date=chat_date,
                   loss_on=loss_on, as_text=as_text, val_data=as_paths(validation_data))
    files = None if isinstance(training_data, Dataset) else training_data
    if files is None and any(reading.values()):
        name = next(name for name, value in reading.items() if value)
        name = {"text_columns": "text_column", "val_data": "validation_data"}.get(name, name)
        raise ArgumentError(f"{name} says how files of training_data are read, but none are given")
    length = _Length(lr, steps, epochs)
    length.check(train, training_data is not None)
    place = _place_of_words(model, adapter)
    setup: Optional[Setup] = None
    given = tokenizer if isinstance(tokenizer, Tokenizer) else None
    words = tokenizer._path if isinstance(tokenizer, Tokenizer) else tokenizer
    made: List[Handle] = []
    if no_bos and given is not None and not given._no_bos:
        raise ArgumentError("no_bos: the tokenizer was opened without it")
    no_bos = no_bos or (given is not None and given._no_bos)
    if files is None and given is None and words is not None:
        given = Tokenizer(words, no_bos)
        made.append(given)
    world = c_void_p()
    try:
        values = dict(
            adapter=adapter, task=task, labels=labels, seq_len=seq_len, target_len=target_len,
            vocab_size=vocab_size or (given.vocab_size if given is not None else 0), seed=seed,
            device=device, train=train, want_eval=want_eval, want_logits=want_logits,
            want_mask=want_mask, keep_gradients=keep_gradients, generate_tokens=generate_tokens,
            resume_from=resume_from,
            batch_ranks=max(int(os.environ.get("SPILLWAY_BATCH_RANKS") or 0), 0))
        options = _Options(model, config, sets, values, length.edits())
        world = _open_world(deadline)
        ranks = int(lib.sw_comm_size(world)) if world.value else 1
        total = steps
        if files is not None and (given is None or words is not None):
            text = _config_text(config)
            setup = Setup(model, files, dict(
                reading, name=task, labels=_task_labels(labels), target_len=target_len,
                no_bos=no_bos, adapter=adapter, tokenizer=words, sets=options.said,
                seq_len=seq_len, seed=seed, config_path=config if text is None else None,
                config_text=text, epochs=epochs, ranks=ranks))
            made.append(setup)
            setup.fill(options.struct)
            total = setup.steps or steps
        elif epochs is not None:
            total = _count_steps(length, _Options(
                model, config, sets, {**values, "plan_only": True,
                                      "batch_ranks": values["batch_ranks"] or ranks},
                [*length.edits(), "--open-steps=true"]), given, training_data, reading)
            options = _Options(model, config, sets, values, length.edits(total))
        options.struct.run.comm = world
    except BaseException:
        _leave_world(world, -2)
        for item in made:
            item.close()
        raise
    try:
        engine = Engine(options, world)
    except BaseException:
        for item in made:
            item.close()
        raise
    engine._owned, engine._words, engine.total_steps = made, place, total
    try:
        engine.tokenizer = given
        if given is None and setup is not None:
            engine.tokenizer = Tokenizer._lent(setup)
            made += [engine.tokenizer] if engine.tokenizer is not None else []
        engine._dataset = _open_data(engine, training_data, setup, reading)
        _check_epochs(engine, length)
        if chat_template is not None and str(chat_template) != "none":
            engine._chat_template = chat_template
    except BaseException:
        engine.close()
        raise
    return engine


def _count_steps(length: _Length, options: _Options, tokenizer: Optional[Tokenizer],
                 training_data: Union[None, Paths, Dataset], reading: Mapping[str, Any]) -> int:
    """Steps of the epochs over a dataset. A plan of the training gives the batch."""
    with Engine(options, c_void_p()) as planned:
        planned.tokenizer = tokenizer
        dataset = _open_data(planned, training_data, None, reading)
        assert dataset is not None
        return length.steps_for(dataset.n_samples(), planned)


def _check_epochs(engine: Engine, length: _Length) -> None:
    """Checks the steps again: ranks that plan together may choose another micro-batch than one
    rank."""
    if length.epochs is None or engine._dataset is None:
        return
    steps = length.steps_for(engine._dataset.n_samples(), engine)
    if steps != engine.total_steps:
        raise ConfigError(
            f"epochs: with the chosen micro-batch of {engine.train_micro_batch_size}, they have "
            f"{steps} steps, not {engine.total_steps}; wanted a number for "
            "train_micro_batch_size_per_gpu")


def _open_data(engine: Engine, training_data: Union[None, Paths, Dataset], setup: Optional[Setup],
               reading: Mapping[str, Any]) -> Optional[Dataset]:
    if training_data is None or isinstance(training_data, Dataset):
        return training_data
    if setup is not None:
        dataset = Dataset._of(setup, engine)
    else:  # the characters of some text, which no file has
        for name in ("text_columns", "label_column", "source_prefix", "chat_template", "loss_on"):
            if reading[name]:
                raise ArgumentError("tokenizer: one of characters reads text only, but "
                                    f"{name.replace('columns', 'column')} is given")
        dataset = Dataset(training_data, val_files=reading["val_data"], seq_len=engine.seq_len,
                          tokenizer=engine.tokenizer, vocab_size=engine.vocab_size,
                          seed=engine.seed, as_text=reading["as_text"],
                          packing="segments" in engine.inputs)
    engine._owned.append(dataset)
    return dataset


def plan(model: Path, config: Config = None, *, sets: Optional[Mapping[str, Any]] = None,
         training_data: Optional[Paths] = None, tokenizer: Optional[Path] = None,
         instructions: bool = False, json: bool = False, **options: Any) -> Any:
    """Returns the plan of a training as text or a dict, without weights and without allocating its
    memory.
    training_data: files that determine the vocabulary and the classes, and whether the data is
    chats; they are read as in :func:`initialize`.
    options: options of :func:`initialize` that change the plan (seq_len, want_eval, ..)."""
    _refuse_object("model", model)
    if tokenizer is not None:
        _refuse_object("tokenizer", tokenizer)
    known = {"adapter", "task", "labels", "seq_len", "target_len", "vocab_size", "seed", "device",
             "want_eval", "want_logits", "want_mask", "keep_gradients", "generate_tokens",
             "resume_from"}
    reads = {"text_column", "label_column", "source_prefix", "chat_template", "chat_date",
             "loss_on", "as_text"}
    for name in options:
        if name not in known | reads:
            raise TypeError(f"plan() got an unexpected keyword argument '{name}'")
        if name in reads and training_data is None:
            raise ArgumentError(f"{name} says how files of training_data are read, but none are "
                                "given")
    reading = {name: options.pop(name) for name in reads & set(options)}
    reading["text_columns"] = as_paths(reading.pop("text_column", None))
    opened = _Options(model, config, sets, dict({"seed": 42}, **options, plan_only=True))
    setup: Optional[Setup] = None
    text = _config_text(config)
    if training_data is not None:
        setup = Setup(model, training_data, dict(
            reading, name=options.get("task"), labels=_task_labels(options.get("labels")),
            target_len=options.get("target_len"), adapter=options.get("adapter"),
            tokenizer=tokenizer, sets=opened.said, seq_len=options.get("seq_len"),
            config_path=config if text is None else None, config_text=text,
            seed=options.get("seed", 42)))
    try:
        if setup is not None:
            setup.fill(opened.struct)
        with Engine(opened, c_void_p()) as engine:
            return engine.plan(instructions, json)
    finally:
        if setup is not None:
            setup.close()


__all__ = ["ClosedError", "Engine", "InputInfo", "StepReport", "initialize", "plan"]
