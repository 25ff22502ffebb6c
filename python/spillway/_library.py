# SPDX-License-Identifier: Apache-2.0
"""libspillway.so through ctypes: its structs, its functions, its errors.

The declarations here are those of include/spillway/*.h. They are never guessed: on import the
library tells the number of its binary interface and the size of each struct, and what differs is an
ImportError; the tests compare the place of every field with the project's record of the interface.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER, Structure, c_bool, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,
    c_uint64, c_void_p,
)
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type

from . import errors

ABI_VERSION = 5

OK, PENDING = 0, 1
_STATUS: Dict[int, Type[errors.SpillwayError]] = {
    -1: errors.ArgumentError,
    -2: errors.ConfigError,
    -3: errors.OutOfMemoryError,
    -4: errors.FileError,
    -5: errors.FormatError,
    -6: errors.UnsupportedError,
    -7: errors.RankError,
    -8: errors.DeviceError,
    -9: errors.StoppedError,
}

MAX_RANK = 6
# enum sw_dtype, by the names that numpy has; it has none for bf16.
DTYPES: Dict[str, int] = {
    "float32": 0, "float64": 1, "float16": 3, "int8": 4, "uint8": 5, "int16": 6, "uint16": 7,
    "int32": 8, "uint32": 9, "int64": 10, "uint64": 11, "bool": 12,
}
BF16, DTYPE_COUNT = 2, 13


class Shape(Structure):
    _fields_ = [("rank", c_int), ("dims", c_int64 * MAX_RANK)]


class View(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("shape", Shape),
                ("strides", c_int64 * MAX_RANK)]


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("view", View)]


class Batch(Structure):
    _fields_ = [("tensors", POINTER(Tensor)), ("n_tensors", c_int)]


class EngineConfig(Structure):
    _fields_ = [("path", c_char_p), ("text", c_char_p), ("sets", POINTER(c_char_p)),
                ("n_sets", c_int)]


class EngineModel(Structure):
    _fields_ = [("path", c_char_p), ("adapter", c_char_p), ("vocab_size", c_int64),
                ("task", c_char_p), ("labels", c_int64), ("label_names", POINTER(c_char_p)),
                ("has_pad_id", c_bool), ("pad_id", c_int32), ("forward", c_void_p),
                ("forward_ctx", c_void_p)]


class EngineInputs(Structure):
    _fields_ = [("seq_len", c_int64), ("most_tokens", c_int64), ("target_len", c_int64),
                ("mask", c_bool)]


class EngineRun(Structure):
    _fields_ = [("comm", c_void_p), ("batch_ranks", c_int), ("device", c_char_p),
                ("verify", c_bool), ("profile", c_bool), ("load_unverified", c_bool),
                ("disk_fault", c_void_p)]


class EngineTrain(Structure):
    _fields_ = [("wanted", c_bool), ("no_dropout", c_bool), ("keep_gradients", c_bool)]


class EngineEvaluate(Structure):
    _fields_ = [("loss", c_bool), ("logits", c_bool), ("hidden", c_bool)]


class EngineEmbed(Structure):
    _fields_ = [("wanted", c_bool)]


class EngineGenerate(Structure):
    _fields_ = [("wanted", c_bool), ("tokens", c_int64)]


class EnginePlan(Structure):
    _fields_ = [("only", c_bool), ("resume_from", c_char_p), ("rates", POINTER(c_char_p)),
                ("n_rates", c_int)]


class EngineOptions(Structure):
    _fields_ = [("config", EngineConfig), ("model", EngineModel), ("inputs", EngineInputs),
                ("run", EngineRun), ("seed", c_uint64), ("train", EngineTrain),
                ("evaluate", EngineEvaluate), ("embed", EngineEmbed),
                ("generate", EngineGenerate), ("plan", EnginePlan)]


class StepReport(Structure):
    _fields_ = [("step", c_int64), ("applied", c_int64), ("samples", c_int64), ("loss", c_double),
                ("grad_norm", c_double), ("lr", c_double), ("loss_scale", c_double),
                ("skipped", c_bool), ("targets", c_double)]


class InputInfo(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("shape", Shape), ("optional", c_bool)]


class HfInput(Structure):
    _fields_ = [("name", c_char_p), ("pad", c_double), ("start", c_int32), ("shifted", c_bool)]


class SaveOptions(Structure):
    _fields_ = [("keep_last", c_int), ("val_loss", c_double), ("metric", c_char_p),
                ("metric_value", c_double), ("metric_falls", c_bool)]


class Sampling(Structure):
    _fields_ = [("temperature", c_double), ("top_k", c_int64), ("top_p", c_double),
                ("seed", c_uint64), ("stop_id", c_int32), ("stop_ids", POINTER(c_int32)),
                ("n_stop_ids", c_int64), ("rules", c_void_p)]


class Ids(Structure):
    _fields_ = [("ptr", POINTER(c_int32)), ("len", c_int64), ("cap", c_int64)]


class TokenizerOptions(Structure):
    _fields_ = [("prefix_space", c_int), ("no_bos", c_bool)]


class DatasetOptions(Structure):
    _fields_ = [
        ("files", POINTER(c_char_p)), ("n_files", c_int), ("val_files", POINTER(c_char_p)),
        ("n_val_files", c_int), ("val_fraction", c_double), ("tokenizer", c_void_p),
        ("vocab_size", c_int64), ("seq_len", c_int64), ("seed", c_uint64), ("as_text", c_bool),
        ("chat", c_void_p), ("packing", c_bool), ("task", c_void_p),
        ("weights", POINTER(c_double)), ("group_by_length", c_int64),
    ]


class TaskOptions(Structure):
    _fields_ = [
        ("name", c_char_p), ("labels", POINTER(c_char_p)), ("n_labels", c_int),
        ("text_columns", POINTER(c_char_p)), ("n_text_columns", c_int), ("label_column", c_char_p),
        ("source_prefix", c_char_p), ("metric", c_char_p), ("target_len", c_int64),
    ]


class TrainOptions(Structure):
    _fields_ = [
        ("model", c_char_p), ("adapter", c_char_p), ("data", POINTER(c_char_p)), ("n_data", c_int),
        ("data_weights", POINTER(c_double)), ("val_data", POINTER(c_char_p)), ("n_val_data", c_int), ("tokenizer", c_char_p),
        ("chat_template", c_char_p), ("chat_date", c_char_p), ("loss_on", c_char_p),
        ("task", TaskOptions), ("config_path", c_char_p), ("config_text", c_char_p),
        ("sets", POINTER(c_char_p)), ("n_sets", c_int), ("rates", POINTER(c_char_p)),
        ("n_rates", c_int), ("output", c_char_p), ("steps", c_int64), ("epochs", c_double),
        ("seq_len", c_int64), ("seed", c_uint64), ("has_seed", c_bool), ("resume", c_bool),
        ("resume_if_any", c_bool), ("resume_from", c_char_p), ("allow_other_data", c_bool),
        ("no_verify", c_bool),
        ("eval_every", c_int64), ("eval_batches", c_int64),
        ("early_stopping", c_int64), ("sample_every", c_int64),
        ("sample_tokens", c_int64), ("sample_prompt", c_char_p), ("save_every", c_int64),
        ("keep_last", c_int64), ("export_dtype", c_int), ("ranks", c_int64),
        ("deadline_s", c_double), ("as_text", c_bool), ("no_bos", c_bool),
        ("group_by_length", c_bool), ("quiet", c_bool),
        ("bar", c_bool), ("no_export", c_bool), ("export_best", c_bool), ("profile", c_bool),
        ("metrics_file", c_char_p), ("stop", c_void_p),
    ]


class RowInput(Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p)]


# Each with the name that it has in C.
STRUCTS: Dict[str, Type[Structure]] = {
    "sw_shape": Shape, "sw_view": View, "sw_tensor": Tensor, "sw_batch": Batch,
    "sw_engine_config": EngineConfig, "sw_engine_model": EngineModel,
    "sw_engine_inputs": EngineInputs, "sw_engine_run": EngineRun, "sw_engine_train": EngineTrain,
    "sw_engine_evaluate": EngineEvaluate, "sw_engine_embed": EngineEmbed,
    "sw_engine_generate": EngineGenerate, "sw_engine_plan": EnginePlan,
    "sw_engine_options": EngineOptions, "sw_step_report": StepReport, "sw_input_info": InputInfo,
    "sw_hf_input": HfInput, "sw_save_options": SaveOptions, "sw_sampling": Sampling, "sw_ids": Ids,
    "sw_tokenizer_options": TokenizerOptions, "sw_dataset_options": DatasetOptions,
    "sw_row_input": RowInput,
    "sw_task_options": TaskOptions, "sw_train_options": TrainOptions,
}

_handle = c_void_p  # of an engine, a tokenizer, a dataset, a communicator
_out = POINTER(c_void_p)
_text = POINTER(c_void_p)  # a text that the caller frees: as a pointer, which ctypes keeps
# (name, what it gives, what it takes). c_int is the type of a status.
_FUNCTIONS: List[Tuple[str, Any, List[Any]]] = [
    ("sw_error_message", c_char_p, []),
    ("sw_text_free", None, [c_void_p]),
    ("sw_version", c_char_p, []),
    ("sw_initialize", c_int, [POINTER(EngineOptions), _out]),
    ("sw_close", None, [_handle]),
    ("sw_engine_micro_batches", c_int64, [_handle]),
    ("sw_engine_micro_batch_size", c_int64, [_handle]),
    ("sw_engine_local_micro_batches", c_int64, [_handle]),
    ("sw_engine_seq_len", c_int64, [_handle]),
    ("sw_engine_vocab", c_int64, [_handle]),
    ("sw_engine_parameters", c_int64, [_handle]),
    ("sw_engine_step", c_int64, [_handle]),
    ("sw_engine_samples", c_int64, [_handle]),
    ("sw_engine_seed", c_uint64, [_handle]),
    ("sw_engine_axis", c_int, [_handle, c_char_p, POINTER(c_int), POINTER(c_int)]),
    ("sw_engine_batch_axis", None, [_handle, POINTER(c_int), POINTER(c_int)]),
    ("sw_engine_group", c_int, [_handle, c_char_p, _out]),
    ("sw_engine_n_inputs", c_int32, [_handle]),
    ("sw_engine_input", c_int, [_handle, c_int32, POINTER(InputInfo)]),
    ("sw_engine_hf_input", c_int, [_handle, c_int32, POINTER(HfInput)]),
    ("sw_train_batch", c_int, [_handle, POINTER(Batch), c_int64, POINTER(StepReport)]),
    ("sw_forward", c_int, [_handle, POINTER(Batch), POINTER(c_double)]),
    ("sw_backward", c_int, [_handle]),
    ("sw_step", c_int, [_handle, POINTER(StepReport)]),
    ("sw_evaluate", c_int, [_handle, POINTER(Batch), POINTER(c_double), POINTER(c_double)]),
    ("sw_logits", c_int, [_handle, POINTER(Batch), POINTER(c_float)]),
    ("sw_logits_shape", c_int, [_handle, POINTER(Shape), POINTER(c_int)]),
    ("sw_engine_n_tensors", c_int32, [_handle]),
    ("sw_engine_tensor", c_int, [_handle, c_int32, POINTER(c_char_p), POINTER(Shape)]),
    ("sw_get_weight", c_int, [_handle, c_char_p, c_int64, c_int64, POINTER(c_float)]),
    ("sw_set_weight", c_int, [_handle, c_char_p, c_int64, c_int64, POINTER(c_float)]),
    ("sw_gradient", c_int, [_handle, c_char_p, POINTER(c_float)]),
    ("sw_export", c_int, [_handle, c_char_p, c_int]),
    ("sw_save", c_int, [_handle, c_char_p, POINTER(SaveOptions)]),
    ("sw_load", c_int, [_handle, c_char_p]),
    ("sw_generate", c_int, [_handle, POINTER(c_int32), c_int64, c_int64, POINTER(Sampling),
                            POINTER(c_int32), POINTER(c_int64), POINTER(c_float)]),
    ("sw_writing_open", c_int, [c_char_p, _handle, POINTER(Sampling), _out]),
    ("sw_writing_apply", None, [_handle, c_int64, c_bool, POINTER(Sampling)]),
    ("sw_writing_close", None, [_handle]),
    ("sw_plan_text", c_int, [_handle, c_bool, c_bool, _text]),
    ("sw_engine_tier_bytes", c_int64, [_handle, c_int]),
    ("sw_world_open", c_int, [c_double, _out]),
    ("sw_comm_close", None, [_handle, c_bool]),
    ("sw_comm_abort", None, [_handle, c_int]),
    ("sw_comm_rank", c_int, [_handle]),
    ("sw_comm_size", c_int, [_handle]),
    ("sw_comm_all_gather", c_int, [_handle, c_void_p, c_void_p, c_size_t, c_char_p]),
    ("sw_comm_broadcast", c_int, [_handle, c_int, c_void_p, c_size_t, c_char_p]),
    ("sw_comm_barrier", c_int, [_handle, c_char_p]),
    ("sw_tokenizer_open", c_int, [c_char_p, c_void_p, _out]),
    ("sw_tokenizer_is_there", c_bool, [c_char_p]),
    ("sw_tokenizer_open_chars_of", c_int, [POINTER(c_char_p), c_int, c_bool, _out]),
    ("sw_tokenizer_close", None, [_handle]),
    ("sw_tokenizer_encode", c_int, [_handle, c_char_p, c_size_t, c_bool, POINTER(Ids)]),
    ("sw_tokenizer_encode_target", c_int, [_handle, c_char_p, c_size_t, c_bool, POINTER(Ids)]),
    ("sw_tokenizer_encode_prompt", c_int, [_handle, c_char_p, c_size_t, POINTER(Ids)]),
    ("sw_tokenizer_decode", c_int, [_handle, POINTER(c_int32), c_int64, c_bool, _text,
                                    POINTER(c_size_t)]),
    ("sw_tokenizer_vocab_size", c_int64, [_handle]),
    ("sw_tokenizer_eos", c_int32, [_handle]),
    ("sw_tokenizer_save", c_int, [_handle, c_char_p]),
    ("sw_ids_fini", None, [POINTER(Ids)]),
    ("sw_dataset_open", c_int, [POINTER(DatasetOptions), _out]),
    ("sw_dataset_close", None, [_handle]),
    ("sw_dataset_n_samples", c_int64, [_handle, c_int]),
    ("sw_dataset_n_tokens", c_int64, [_handle]),
    ("sw_train_default_optimizer", c_char_p, []),
    ("sw_train_setup_open", c_int, [POINTER(TrainOptions), _out]),
    ("sw_train_setup_engine", POINTER(EngineOptions), [_handle]),
    ("sw_train_setup_tokenizer", c_void_p, [_handle]),
    ("sw_train_setup_data", c_int, [_handle, _handle, _handle, _out]),
    ("sw_train_setup_close", None, [_handle]),
    ("sw_dataset_fetch_inputs", c_int, [_handle, c_int, c_int64, c_int64, POINTER(RowInput),
                                        c_int]),
]


def _open() -> ctypes.CDLL:
    """$SPILLWAY_LIBRARY, else the one that came with the package, else the system's."""
    named = os.environ.get("SPILLWAY_LIBRARY")
    beside = Path(__file__).parent / "lib" / f"libspillway.so.{ABI_VERSION}"
    path = named or (str(beside) if beside.exists() else beside.name)
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        where = "SPILLWAY_LIBRARY" if named else "spillway"
        raise ImportError(f"{where}: {error}") from None


def _check(library: ctypes.CDLL) -> None:
    """Checks that the library matches the declarations here."""
    path = getattr(library, "_name", "libspillway.so")
    try:
        library.sw_abi_size.restype = c_int64
        library.sw_abi_size.argtypes = [c_char_p]
        version = library.sw_abi_version()
    except AttributeError:
        raise ImportError(f"{path}: it is older than this package") from None
    if version != ABI_VERSION:
        raise ImportError(f"{path}: binary interface {version}, this package is for {ABI_VERSION}")
    for name, struct in STRUCTS.items():
        bytes_ = library.sw_abi_size(name.encode())
        if bytes_ != ctypes.sizeof(struct):
            raise ImportError(f"{path}: struct {name} has {bytes_} bytes there, here "
                              f"{ctypes.sizeof(struct)}")


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, result, arguments in _FUNCTIONS:
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


_unchecked = _open()
_check(_unchecked)
lib = _declare(_unchecked)


def check(status: int) -> int:
    """Raises the exception of a negative status, with the library's message."""
    if status >= 0:
        return status
    message = lib.sw_error_message().decode("utf-8", "replace")
    raise _STATUS.get(status, errors.SpillwayError)(message)


def path_bytes(path: Any) -> bytes:
    """Converts a path or a name to bytes for the library."""
    data = os.fsencode(path)
    if b"\0" in data:
        raise errors.ArgumentError("a path has no NUL character")
    return data


def texts(items: Optional[Sequence[Any]]) -> "ctypes.Array[c_char_p]":
    """Makes an array of C strings, which owns them."""
    given = [path_bytes(item) for item in items or ()]
    return (c_char_p * len(given))(*given)


def take_text(pointer: c_void_p, length: Optional[int] = None) -> str:
    """Converts a text that the library returned, and frees it."""
    assert pointer.value is not None
    try:
        data = ctypes.string_at(pointer.value, -1 if length is None else length)
    finally:
        lib.sw_text_free(pointer)
    return data.decode("utf-8", "replace")
