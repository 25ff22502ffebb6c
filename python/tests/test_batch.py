# SPDX-License-Identifier: Apache-2.0
"""A batch of transformers' collators is the batch that one would convert by hand, to the bit; what
cannot be one is refused by name."""

from __future__ import annotations

import json
import re
from collections import UserDict
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping

import numpy as np
import pytest

import spillway
from conftest import CONFIG, SMALL, opened

T, V, PAD, NONE = 8, 11, 1, -100
ENCODER = {"vocab_size": V, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
           "intermediate_size": 12, "max_position_embeddings": 12, "hidden_dropout_prob": 0,
           "attention_probs_dropout_prob": 0}
MODELS: Dict[str, Dict[str, Any]] = {
    "gpt2": {**SMALL, "pad_token_id": PAD},
    "gpt2 without a padding id": SMALL,
    "bert": {"model_type": "bert", **ENCODER},
    "roberta": {"model_type": "roberta", **ENCODER},
    "bart": {"model_type": "bart", "vocab_size": V, "d_model": 8, "encoder_layers": 1,
             "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
             "encoder_ffn_dim": 12, "decoder_ffn_dim": 12, "max_position_embeddings": 12,
             "dropout": 0},
    "vit": {"model_type": "vit", "hidden_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 2, "intermediate_size": 12, "image_size": 4, "patch_size": 2},
}
Arrays = Dict[str, Any]
Given = Callable[..., spillway.Engine]


@pytest.fixture
def given(tmp_path: Path) -> Given:
    """Opens an engine of a model for evaluation; micro-batches of two rows of T tokens."""
    def make(model: str = "gpt2", **options: Any) -> spillway.Engine:
        path = tmp_path / f"{model}.json"
        path.write_text(json.dumps(MODELS[model]))
        defaults = dict(train=False, want_eval=True, seq_len=0 if model == "vit" else T)
        return opened(path, **{**defaults, **options})

    return make


class Torch:
    """What is used of a tensor of torch; of bf16, numpy() is refused there."""

    def __init__(self, array: Any, is_bf16: bool = False) -> None:
        self.array, self.is_bf16 = np.asarray(array), is_bf16

    def detach(self) -> "Torch":
        return self

    cpu = detach

    def float(self) -> "Torch":
        return Torch(self.array.astype(np.float32))

    def numpy(self) -> Any:
        if self.is_bf16:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array


class Protocol:
    """A tensor of another library, by one protocol alone."""

    def __init__(self, array: Any) -> None:
        self._array = np.asarray(array)


class ByArray(Protocol):
    """By numpy's."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._array


class ByDlpack(Protocol):
    """By DLPack."""

    def __dlpack__(self, **how: Any) -> Any:
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class Encoding(UserDict):  # type: ignore[type-arg]
    """A BatchEncoding, by what it is known by."""

    def convert_to_tensors(self) -> None:
        raise AssertionError


def texts(left: bool = False, rows: int = 2, width: int = 6) -> Arrays:
    """Rows as a collator of a causal model has them: int64, the second one padded."""
    ids = np.arange(rows * width).reshape(rows, width) * 7 % (V - 3) + 3
    mask = np.ones_like(ids)
    if rows > 1:
        mask[1, :2 if left else None] = mask[1, None if left else 4:] = 0
        mask[1, 2 if left else 0:None if left else 4] = 1
    ids[mask == 0] = PAD
    return {"input_ids": ids, "attention_mask": mask, "labels": np.where(mask, ids, NONE)}


def wide(array: Any, fill: int, width: int = T) -> Any:
    """In i32, filled up behind the end of each row."""
    made = np.full((len(array), width), fill, dtype=np.int32)
    made[:, :array.shape[1]] = array
    return made


def by_hand(batch: Mapping[str, Any], shifted: bool, pad: int = PAD) -> Arrays:
    """The same for an engine, written down once more."""
    labels = wide(batch["labels"], NONE)
    if shifted:
        labels = np.concatenate([labels[:, 1:], np.full((len(labels), 1), NONE)], 1)
    return {"input_ids": wide(batch["input_ids"], pad),
            "attention_mask": wide(batch["attention_mask"], 0), "labels": labels.astype(np.int32)}


def without(batch: Mapping[str, Any], *names: str) -> Arrays:
    return {name: value for name, value in batch.items() if name not in names}


@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist, Torch, ByArray, ByDlpack,
                                  memoryview])
def test_numbers_of_any_library_are_taken(given: Given, kind: Callable[[Any], Any]) -> None:
    batch = texts()
    with given() as engine:
        wanted = engine.evaluate(without(by_hand(batch, True), "attention_mask"))
        assert engine.evaluate({name: kind(value) for name, value in batch.items()}) == wanted
        encoding = Encoding({name: value.astype(np.int32) for name, value in batch.items()})
        assert engine.evaluate(encoding) == wanted
        rows = [row[row != PAD].tolist() for row in batch["input_ids"]]  # without a collator
        assert engine.evaluate({"input_ids": rows, "labels": rows}) == wanted
    assert wanted[1] == 8


def test_weights_are_shifted_with_their_labels(given: Given) -> None:
    batch = texts()
    weights = np.arange(batch["labels"].size, dtype=np.float64).reshape(batch["labels"].shape) / 4
    ours = np.zeros((len(weights), T), dtype=np.float32)
    ours[:, :weights.shape[1] - 1] = weights[:, 1:]
    config = {**CONFIG, "spillway": {**CONFIG.get("spillway", {}), "token_weights": True}}
    with given(config=config) as engine:
        hand = {**without(by_hand(batch, True), "attention_mask"), "weights": ours}
        wanted = engine.evaluate(hand)
        assert engine.evaluate({**batch, "weights": weights}) == wanted
        assert wanted[1] == ours[hand["labels"] != NONE].sum()
    with given() as engine:
        with pytest.raises(spillway.ArgumentError, match="weights: this model takes"):
            engine.evaluate(hand)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("model", ["gpt2", "bert", "roberta"])
def test_rows_are_padded_on_either_side(given: Given, model: str, left: bool) -> None:
    batch, pad = texts(left), {"bert": 0}.get(model, PAD)
    batch["input_ids"][batch["attention_mask"] == 0] = pad
    hand = by_hand(batch, model == "gpt2", pad)
    with given(model, want_mask=True, task=None if model == "gpt2" else "masked") as engine:
        wanted = engine.evaluate(hand)
        assert engine.evaluate(batch) == wanted
        longer = {name: wide(batch[name], fill).astype(np.int64)
                  for name, fill in (("input_ids", pad), ("attention_mask", 0), ("labels", NONE))}
        assert engine.evaluate(longer) == wanted
        converted = spillway.Batch.from_hf(engine, batch)
        assert (converted.rows, converted.columns) == (2, 6)
        for name, array in spillway.Batch.from_hf(engine.inputs, batch).items():
            assert np.array_equal(array, hand[name]) and array.dtype == hand[name].dtype, name
            assert np.array_equal(array, converted[name])


def test_a_decoder_without_a_mask_takes_what_none_would_change(given: Given) -> None:
    with given() as engine:
        assert engine.evaluate(texts()) == \
            engine.evaluate(without(by_hand(texts(), True), "attention_mask"))
        for batch, says in [
            (texts(left=True), "attention_mask: 0 at [1, 0] hides a token that token 1"),
            ({**texts(), "labels": texts()["input_ids"]}, "0 at [1, 4] hides a token that token 4"),
        ]:
            with pytest.raises(spillway.ArgumentError, match=re.escape(says) + ".*want_mask=True"):
                engine.evaluate(batch)
    with given(task="classify", labels=3) as engine:
        one = {**texts(), "labels": [2, 0]}
        hand = {"input_ids": wide(one["input_ids"], PAD), "labels": np.int32([2, 0])}
        assert engine.evaluate(one) == engine.evaluate(hand)
        with pytest.raises(spillway.ArgumentError, match=re.escape("0 at [1, 0] hides")):
            engine.evaluate({**texts(left=True), "labels": [2, 0]})
    with given("gpt2 without a padding id", task="classify", labels=3) as engine:
        with pytest.raises(spillway.ArgumentError, match="input_ids: .* no pad_token_id"):
            engine.evaluate(one)


LABELS: List[Any] = [
    ("classify", 3, {"labels": [[2], [0]]}, {"labels": np.int32([2, 0])}),
    ("regression", 1, {"labels": np.float64([0.5, -1])}, {"labels": np.float32([[0.5], [-1]])}),
    ("multi-label", 2, {"labels": [[1, 0], [1, 1]]}, {"labels": np.float32([[1, 0], [1, 1]])}),
    ("answers", 0, {"start_positions": [1, 6], "end_positions": [[2], [99]]},
     {"start_positions": np.int32([1, NONE]), "end_positions": np.int32([2, NONE])}),
]


@pytest.mark.parametrize("task, labels, theirs, ours", LABELS, ids=[row[0] for row in LABELS])
def test_labels_of_a_task_are_not_shifted(given: Given, task: str, labels: int, theirs: Arrays,
                                          ours: Arrays) -> None:
    batch = texts()
    types = np.arange(6)[None] // 3 * batch["attention_mask"]
    hand = {**without(by_hand(batch, False, 0), "labels"), **ours,
            "token_type_ids": wide(types, 0)}
    with given("bert", task=task, labels=labels or None) as engine:
        found = engine.evaluate({**batch, **theirs, "labels": theirs.get("labels"),
                                 "token_type_ids": Torch(types)})
        hand["input_ids"][:, :6] = batch["input_ids"]  # its padding is hidden by the mask
        assert found == engine.evaluate(hand)


def test_an_encoder_decoder_reads_its_labels(given: Given) -> None:
    batch = {**texts(), "labels": np.int64([[5, 6, NONE], [7, NONE, NONE]])}
    hand = {**by_hand(batch, False), "labels": wide(batch["labels"], NONE, 5)}
    read = np.int64([[2, 5, 6], [2, 7, PAD]])
    with given("bart", task="seq2seq", target_len=5, want_logits=True) as engine:
        wanted = engine.evaluate(hand)
        assert engine.evaluate(batch) == wanted
        assert engine.evaluate({**batch, "decoder_input_ids": read,
                                "decoder_attention_mask": [[1, 1, 0], [1, 0, 0]]}) == wanted
        assert np.array_equal(engine.logits(batch), engine.logits(hand)[:, :3])
        read[1, 1] = 8
        with pytest.raises(spillway.ArgumentError, match=re.escape(
                "decoder_input_ids: 8 at [1, 1]; this decoder reads 7 there")):
            engine.evaluate({**batch, "decoder_input_ids": read})
        with pytest.raises(spillway.ArgumentError, match=re.escape(
                "decoder_attention_mask: 0 at [0, 0] hides a token that token 0")):
            engine.evaluate({**batch, "decoder_attention_mask": [[0, 1, 1], [1, 1, 1]]})


def test_images_are_f32_whatever_they_were(given: Given) -> None:
    pixels = np.linspace(-1, 1, 96).reshape(2, 3, 4, 4).astype(np.float16)
    hand = {"pixel_values": pixels.astype(np.float32), "labels": np.int32([1, 0])}
    with given("vit", labels=3, want_logits=True) as engine:
        wanted = engine.evaluate(hand)
        for values in (pixels, pixels.astype(np.float64), Torch(pixels, is_bf16=True),
                       list(map(Torch, pixels)), pixels.tolist()):
            assert engine.evaluate({"pixel_values": values, "labels": [1, 0]}) == wanted
        assert np.array_equal(engine.logits({"pixel_values": pixels[:1].tolist()}),
                              engine.logits(without(hand, "labels"))[:1])


@pytest.mark.parametrize("model, task, labels", [
    ("gpt2", None, None), ("bert", "classify", [2]), ("bert", "regression", [0.25]),
    ("bert", "masked", None), ("bart", "classify", [1]), ("vit", "images", [2]),
])
def test_rows_that_a_micro_batch_lacks_have_no_loss(given: Given, model: str, task: Any,
                                                    labels: Any) -> None:
    one: Arrays = {"pixel_values": np.ones((1, 3, 4, 4))} if model == "vit" else texts(rows=1)
    if model == "bart":
        one["input_ids"][0, -1] = 2  # it reads the row's end
    one["labels"] = one.get("labels") if labels is None else labels
    n_labels = None if labels is None else 1 if task == "regression" else 3
    with given(model, task=task, labels=n_labels, want_logits=True) as engine:
        total, count = engine.evaluate(one)
        logits = engine.logits(one)
    with given(model, task=task, labels=n_labels, want_logits=True,
               config={"train_batch_size": 1}) as alone:
        assert alone.train_micro_batch_size == 1
        wanted = alone.evaluate(one)
        assert (total, count) == pytest.approx(wanted, rel=1e-6) and count > 0
        assert logits.shape == alone.logits(one).shape
        assert np.allclose(logits, alone.logits(one), atol=1e-6)


@pytest.mark.parametrize("task, labels, wanted, of_tokens", [
    ("tokens", 5, (2, T, 5), True), ("answers", None, (2, T), True),
    ("masked", None, (2, T, V), True), ("embed", None, (2, T, 8), True), ("classify", T, (2, T), False),
])
def test_the_shape_of_logits_follows_from_the_task_alone(given: Given, task: str, labels: Any,
                                                         wanted: Any, of_tokens: bool) -> None:
    ids = np.arange(2 * T, dtype=np.int32).reshape(2, T) % V
    short = {"input_ids": ids[:1, :6].tolist()}
    for want_eval in {False, task != "embed"}:
        with given("bert", task=task, labels=labels, want_eval=want_eval,
                   want_logits=True) as engine:
            logits = engine.logits({"input_ids": ids})
            assert logits.shape == wanted
            assert np.isfinite(logits).all()
            cut = (1, 6, *wanted[2:]) if of_tokens else (1, T)
            assert engine.logits(short).shape == cut
    with given(want_logits=False) as engine:
        with pytest.raises(spillway.ArgumentError, match="opened without evaluate.logits"):
            engine.logits({"input_ids": ids})


def test_packed_documents_are_told_by_their_positions(given: Given) -> None:
    ids = np.int64([[3, 4, 5, 6, 7, 8]])
    flat = {"input_ids": ids, "position_ids": [[0, 1, 2, 3, 0, 1]],
            "labels": np.int64([[NONE, 4, 5, 6, NONE, 8]])}
    config = {"train_batch_size": 1, "spillway": {"packing": True}}
    with given(config=config) as engine:
        converted = spillway.Batch.from_hf(engine, flat)
        assert converted["segments"].tolist() == [[1, 1, 1, 1, 2, 2, 0, 0]]
        assert converted["positions"].tolist() == [[0, 1, 2, 3, 0, 1, 0, 0]]
        total, count = engine.evaluate(flat)
        apart = [engine.evaluate({"input_ids": part, "labels": part})
                 for part in (ids[:, :4], ids[:, 4:])]
        assert count == 4 and total == pytest.approx(sum(part[0] for part in apart), rel=1e-6)
    with given() as engine:
        same = {**texts(), "position_ids": np.arange(6)[None].repeat(2, 0)}
        assert engine.evaluate(same) == engine.evaluate(texts())
        later = engine.evaluate({**texts(), "position_ids": np.arange(1, 7)})
        assert later != engine.evaluate(texts())


def test_a_step_takes_all_micro_batches_together_or_apart(given: Given) -> None:
    whole = texts(rows=4)
    parts = [{name: array[k:k + 2] for name, array in whole.items()} for k in (0, 2)]
    hand = without(by_hand(whole, True), "attention_mask")

    def loss(batch: Any) -> float:
        with given(train=True) as engine:
            assert engine.local_micro_batches == 2
            return engine.train_batch(batch)

    wanted = loss(hand)
    assert loss(whole) == loss(parts) == loss(iter(parts)) == wanted
    three = {name: array[:3] for name, array in whole.items()}
    with given(train=True) as engine:
        assert engine.train_batch(three) > 0  # half of the second micro-batch is blank
        with pytest.raises(spillway.ArgumentError, match=re.escape(
                "input_ids: wanted i32[4, 8], 2 micro-batches of 2, got i32[2, 8]")):
            engine.train_batch(parts[0])
        for part in parts:
            engine.backward(engine(part))
        report = engine.step()
        assert report is not None and report.targets == hand["labels"].size - \
            np.count_nonzero(hand["labels"] == NONE)
        with pytest.raises(spillway.ArgumentError, match=re.escape("wanted i32[2, 8], got i32[4")):
            engine.forward(whole)


@pytest.mark.parametrize("change, says", [
    (dict(input_ids=np.ones((2, 9), np.int64)),
     "input_ids: wanted i32[2, 8] or fewer tokens a row, got i64[2, 9]"),
    (dict(input_ids=np.ones(6, np.int64)), "or fewer tokens a row, got i64[6]"),
    (dict(input_ids=np.ones((2, 6))), "input_ids: wanted whole numbers, got f64[2, 6]"),
    (dict(input_ids=np.full((2, 6), 2**40)), "input_ids: a number is beyond i32"),
    (dict(input_ids=np.full((2, 6), V)), f"input_ids: {V} at [0, 0]; wanted 0 .. {V - 1}"),
    (dict(input_ids=[["a"]]), "input_ids: wanted numbers of this machine"),
    (dict(input_ids=[[[1], [1, 2]]]), "input_ids: wanted rows of numbers, got lists of several"),
    (dict(input_ids=[[[1, 2]], [[1, 2, 3]]]), "got i64[1, 2] and i64[1, 3]"),
    (dict(input_ids=[]), "the batch has no rows of input_ids"),
    (dict(input_ids=None, labels=None, attention_mask=None), "the batch has no rows of input_ids"),
    (dict(labels=np.ones((2, 5), np.int64)), "labels: wanted i32[2, 6], got i64[2, 5]"),
    (dict(labels=np.ones((1, 6), np.int64)), "labels: wanted i32[2, 6], got i64[1, 6]"),
    (dict(labels=None), 'the batch has no tensor "labels", i32[2, 8], which the loss needs'),
    (dict(attention_mask=np.ones((2, 1, 6, 6), np.int64)),
     "attention_mask: wanted i32[2, 6], got i64[2, 1, 6, 6]"),
    (dict(token_type_ids=np.zeros((2, 6), np.int64)),
     "token_type_ids: got i64[2, 6]; this model takes input_ids, position_ids, labels"),
    (dict(position_ids=np.int64([[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3]])),
     "position_ids: wanted i32[8], the same for all rows (another one begins at [1, 1]"),
    (dict(inputs_embeds=np.zeros((2, 6, 4))), "inputs_embeds: got f64[2, 6, 4]"),
    (dict(decoder_input_ids=np.zeros((2, 6), np.int64)), "decoder_input_ids: got i64[2, 6]"),
    (dict(labels=spillway.shift_labels(texts()["labels"])), "each is the token after its place"),
])
def test_what_cannot_be_converted_is_named(given: Given, change: Arrays, says: str) -> None:
    with given() as engine:
        wanted = engine.evaluate(texts())
        with pytest.raises(spillway.ArgumentError, match=re.escape(says)):
            engine.evaluate({**texts(), **change})
        assert engine.evaluate(texts()) == wanted
        arrays = without(by_hand(texts(), True), "attention_mask")
        assert engine.evaluate(arrays) == wanted  # one of the engine's own is not converted
    with given("bert", task="answers") as engine:
        with pytest.raises(spillway.ArgumentError, match=re.escape("start_positions: -1 at [1];")):
            engine.evaluate({**without(texts(), "labels"), "start_positions": [0, -1],
                             "end_positions": [1, 2]})
