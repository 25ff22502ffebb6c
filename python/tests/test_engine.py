# SPDX-License-Identifier: Apache-2.0
"""What an engine shows, and what it refuses: each as a Python exception with the library's line."""

from __future__ import annotations

import gc
import inspect
import json
import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

import spillway
from conftest import CONFIG, opened

Arrays = Dict[str, Any]


def batch(rows: int = 4, tokens: int = 4, vocab: int = 11) -> Arrays:
    """One for the small model: two micro-batches of two rows."""
    ids = (np.arange(rows * (tokens + 1), dtype=np.int32).reshape(rows, -1) * 7) % vocab
    return {"input_ids": np.ascontiguousarray(ids[:, :-1]),
            "labels": np.ascontiguousarray(ids[:, 1:])}


@pytest.mark.parametrize("change, says", [
    (lambda b: b.update(input_ids=b["input_ids"].astype(np.int64)),
     "labels: each is the token after its place already"),
    (lambda b: b.update(labels=b["labels"][:, :3]),
     "labels: wanted i32[4, 4], 2 micro-batches of 2, got i32[4, 3]"),
    (lambda b: b.update(labels=b["labels"][:2]),
     "labels: wanted i32[4, 4], 2 micro-batches of 2, got i32[2, 4]"),
    (lambda b: b.pop("labels"), 'the batch has no tensor "labels"'),
    (lambda b: b.update(attention_mask=b["labels"]),
     "attention_mask: this model takes input_ids, positions, labels"),
    (lambda b: b["input_ids"].__setitem__((3, 2), 11),
     "input_ids: 11 at [1, 2]; wanted 0 .. 10"),
    (lambda b: b.update(input_ids=np.array([["a"]])), "input_ids: wanted numbers of this machine"),
    (lambda b: b.update(input_ids=b["input_ids"].astype(">i4")),
     "input_ids: wanted numbers of this machine, got dtype >i4"),
    (lambda b: b.update(labels=b["input_ids"]), "by spillway.shift_labels"),
    (lambda b: b.update(labels=np.where(np.arange(4) < 2, -100, b["input_ids"]).astype(np.int32)),
     "by spillway.shift_labels"),
])
def test_a_wrong_batch_is_named_and_changes_nothing(small: Path, change: Any, says: str) -> None:
    def curve(wrong: bool) -> Any:
        with opened(small) as engine:
            found = [engine.train_batch(batch())]
            if wrong:
                bad = batch()
                change(bad)
                with pytest.raises(spillway.ArgumentError, match=re.escape(says)) as caught:
                    engine.train_batch(bad)
                assert isinstance(caught.value, ValueError)
            return found + [engine.train_batch(batch())]

    assert curve(True) == curve(False)


def test_parts_of_a_step_want_their_order_and_their_micro_batch(small: Path) -> None:
    with opened(small) as engine:
        one = batch(2)
        with pytest.raises(spillway.ArgumentError, match="sw_backward"):
            engine.backward()
        with pytest.raises(spillway.ArgumentError, match="sw_step"):
            engine.step()
        with pytest.raises(spillway.ArgumentError,
                           match=re.escape("input_ids: wanted i32[2, 4], got i32[4, 4]")):
            engine.forward(batch(4))
        loss = engine(one)
        with pytest.raises(spillway.ArgumentError, match="the backward .* is missing"):
            engine(one)
        engine.backward(loss)
        assert engine.step() is None
        engine.backward(engine(one))
        report = engine.step()
        assert report and report.step == 1 and report == engine.last_step
        for wrong in (3, "x", 1.5):
            with pytest.raises(spillway.ArgumentError, match="a batch is a dict of arrays"):
                engine.train_batch(wrong)  # type: ignore[arg-type]
        with pytest.raises(spillway.ArgumentError, match="neither a batch nor training_data"):
            engine.train_batch()


def test_a_step_that_fails_half_way_begins_again(small: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, *arguments: Any) -> int:
        raise spillway.FileError("the disk is gone")

    with opened(small) as engine:
        engine(batch(2))
        engine.backward()
        with monkeypatch.context() as broken:
            broken.setattr(engine, "_call", fail)
            with pytest.raises(OSError, match="the disk is gone"):
                engine.backward()
        assert not engine.is_gradient_accumulation_boundary()
        assert engine._n_backward == 0  # of the step that comes next


def uses(thing: Any) -> Dict[str, Callable[[], Any]]:
    """Everything public that one may do with an object, by name: methods, of arguments that make no
    sense, and properties."""
    found: Dict[str, Callable[[], Any]] = {}
    for name, value in inspect.getmembers(type(thing)):
        special = name in ("__call__", "__enter__", "__iter__", "__len__")
        if name in ("close", "closed") or (name.startswith("_") and not special):
            continue
        if isinstance(value, property):
            found[name] = lambda name=name: getattr(thing, name)
        elif inspect.isfunction(value):
            parameters = list(inspect.signature(value).parameters.values())[1:]
            wrong = [object() for p in parameters if p.default is p.empty]
            found[name] = lambda value=value, wrong=wrong: value(thing, *wrong)
    return found


def test_whatever_a_closed_engine_is_asked_it_says_so(text: Path) -> None:
    with spillway.Tokenizer.of_characters(text) as letters, \
            spillway.Dataset(text, seq_len=16, tokenizer=letters) as data:
        engine = opened(training_data=data, tokenizer=letters, want_eval=True)
        _, optimizer, loader, scheduler = engine
        iteration = iter(loader)
        next(iteration)
        engine.close()
        engine.close()
        assert engine.closed and "closed" in repr(engine)
        calls = {f"engine.{name}": call for name, call in uses(engine).items()}
        assert len(calls) > 25 and {"engine.train_batch", "engine.evaluate", "engine.__iter__",
                                    "engine.get_lr", "engine.parameters"} <= set(calls)
        for what in (optimizer, loader, scheduler):
            calls.update((f"{type(what).__name__}.{n}", call) for n, call in uses(what).items())
        calls["an iteration that goes on"] = lambda: next(iteration)
        for name, call in calls.items():
            with pytest.raises(spillway.ClosedError, match="the engine is closed"):
                raise AssertionError(f"{name} gave {call()!r}")
        assert letters.vocab_size > 0 and data.n_samples() > 0  # the caller's stay open
    for closed in (letters, data):
        for name, call in uses(closed).items():
            if name not in ("of_characters", "__enter__"):
                with pytest.raises(spillway.ClosedError, match=f"the {closed._what} is closed"):
                    raise AssertionError(f"{name} gave {call()!r}")


def test_a_group_has_the_ranks_of_an_axis(small: Path) -> None:
    engine = opened(small)
    for axis in ("pipe", "data", "context", "tensor"):
        group = engine.group(axis)
        assert (group.axis, group.rank, group.size) == (axis, 0, 1)
        value = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(group.all_gather(value), value[None])
        np.testing.assert_array_equal(group.broadcast(value), value)
        assert group.all_gather(7).tolist() == [7]
        group.barrier()
    with pytest.raises(spillway.ArgumentError, match='the nearest is "tensor"'):
        engine.group("tenser")
    with pytest.raises(spillway.ArgumentError, match="root is 1; wanted 0 to 0"):
        group.broadcast(value, root=1)
    engine.close()
    with pytest.raises(spillway.ClosedError, match="the engine is closed"):
        group.barrier()


def test_what_an_engine_opened_is_closed_with_it(text: Path) -> None:
    engine = opened(training_data=text)
    loader, tokenizer = engine.training_dataloader, engine.tokenizer
    assert loader is not None and tokenizer is not None
    engine.close()
    for thing in (loader.dataset, tokenizer):
        for name, call in uses(thing).items():
            with pytest.raises(spillway.ClosedError):
                raise AssertionError(f"{name} gave {call()!r}")


def test_an_exception_inside_a_loop_closes_the_engine(small: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        with opened(small) as engine:
            for i in range(3):
                engine(batch(2))
                engine.backward()
                1 // (1 - i)
    assert engine.closed


def test_an_engine_that_nobody_holds_is_closed(small: Path) -> None:
    gc.disable()  # it does not wait for that
    try:
        engine, optimizer, loader, scheduler = opened(small)
        finalizer = engine._finalizer
        del engine
        assert finalizer.alive and loader is None
        del optimizer, scheduler
        assert not finalizer.alive
    finally:
        gc.enable()


def test_another_thread_and_a_fork_are_refused(small: Path) -> None:
    with opened(small) as engine:
        with engine._lock:  # as a call of another thread holds it
            for call in (engine.backward, engine.close):
                with pytest.raises(spillway.ArgumentError, match="in use by another thread"):
                    call()
        child = os.fork()
        if child == 0:
            try:
                engine.backward()
            except spillway.ArgumentError as error:
                engine.close()
                os._exit(0 if "which forked this one" in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert engine.train_batch(batch()) > 0


@pytest.mark.parametrize("options, kind, says", [
    (dict(config={"train_batch_size": 1, "gradient_cliping": 1}), spillway.ConfigError,
     "gradient_clipping"),
    (dict(config={"train_batch_size": float("nan")}), spillway.ArgumentError, "config: "),
    (dict(config=[1]), spillway.ArgumentError, "config: wanted a path or a dict, got list"),
    (dict(config="/no/such.json"), spillway.FileError, "/no/such.json"),
    (dict(seq_len=99), spillway.ConfigError, "sequence length 99"),
    (dict(seq_len=-5), spillway.ArgumentError, "seq_len is -5; wanted 0 .."),
    (dict(seed=-1), spillway.ArgumentError, "seed is -1"),
    (dict(vocab_size=2**70), spillway.ArgumentError, "vocab_size is 1180591620717411303424"),
    (dict(sets={"spillway.device_memory": "1KiB"}), spillway.OutOfMemoryError, "1024"),
    (dict(device="abacus"), spillway.ArgumentError, "abacus"),
    (dict(task="dream"), spillway.SpillwayError, "dream"),
    (dict(labels=1.5), spillway.ArgumentError, "labels: wanted names, or how many"),
    (dict(training_data="/no/such.txt"), spillway.FileError, "/no/such.txt"),
])
def test_what_cannot_be_opened_says_why(small: Path, options: Any, kind: Any, says: str) -> None:
    with pytest.raises(kind, match=re.escape(says)) as caught:
        opened(small, **options)
    assert isinstance(caught.value, spillway.SpillwayError)
    assert "\n" not in str(caught.value)


class Module:
    """What torch.nn.Module has."""

    def state_dict(self) -> Any:
        return {}


class PreTrainedModel(Module):
    """What a model of transformers has besides."""

    def save_pretrained(self, folder: str) -> None:
        raise AssertionError("nothing is saved unasked")


@pytest.mark.parametrize("model, says", [
    (PreTrainedModel(), "model: wanted a path or a name, got an object of PreTrainedModel; save it "
                        "first, model.save_pretrained(folder), and pass the folder"),
    (Module(), "model: wanted a path or a name, got an object of Module; save it first as a "
               "Hugging Face folder"),
    (3, "model: wanted a path or a name, got int"),
    (None, "model: wanted a path or a name, got NoneType"),
])
def test_a_model_object_is_to_be_saved_first(model: Any, says: str) -> None:
    for call in (spillway.initialize, spillway.plan):
        with pytest.raises(spillway.ArgumentError, match=re.escape(says)):
            call(model, CONFIG)
        if model is None:
            continue
        with pytest.raises(spillway.ArgumentError, match="^tokenizer: wanted a path or a name"):
            call("gpt2-tiny", CONFIG, tokenizer=model)


def test_weights_and_gradients_are_arrays(small: Path) -> None:
    with opened(small, keep_gradients=True) as engine:
        names = engine.parameters
        assert names["transformer.wte.weight"] == (11, 4)
        assert sum(int(np.prod(shape)) for shape in names.values()) == engine.n_parameters
        weight = engine.get_weight("transformer.wte.weight")
        weight[2] = 0.5
        engine.set_weight("transformer.wte.weight", weight)
        assert np.array_equal(engine.get_weight("transformer.wte.weight"), weight)
        for wrong in (weight.astype(np.float64), weight[:2]):
            with pytest.raises(spillway.ArgumentError, match=r"wanted f32\[11, 4\], got f"):
                engine.set_weight("transformer.wte.weight", wrong)
        with pytest.raises(spillway.ArgumentError, match='no parameter "wte"'):
            engine.get_weight("wte")
        engine.train_batch(batch())
        assert np.abs(engine.gradient("transformer.wte.weight")).sum() > 0


def test_evaluation_is_what_logits_say(small: Path) -> None:
    one = batch(2)
    with opened(small, train=False, want_eval=True, want_logits=True) as engine:
        total, count = engine.evaluate(one)
        logits = engine.logits({"input_ids": one["input_ids"]}).astype(np.float64)
        with pytest.raises(spillway.ArgumentError, match="without training"):
            engine.train_batch([one, one])
    assert logits.shape == (2, 4, 11) and count == 8
    sums = np.log(np.exp(logits).sum(-1))
    rows = np.take_along_axis(logits, one["labels"][..., None].astype(np.int64), -1)[..., 0]
    assert abs(total - (sums - rows).sum()) < 1e-4


def test_plans_can_be_read(small: Path) -> None:
    with opened(small) as engine:
        text = engine.plan()
        document = engine.plan(json=True)
        assert "program train" in text and len(engine.plan(instructions=True)) > len(text)
        assert engine.tier_bytes()["device"] > 0
    assert spillway.plan(small, CONFIG, seq_len=4, json=True) == document
    with pytest.raises(TypeError, match="no_such"):
        spillway.plan(small, CONFIG, no_such=1)


def test_a_plan_of_files_is_that_of_their_training(text: Path, tmp_path: Path) -> None:
    with opened(training_data=text, seq_len=4) as engine:
        document = engine.plan(json=True)
    assert spillway.plan("gpt2-tiny", CONFIG, training_data=text, seq_len=4,
                         json=True) == document
    chats = tmp_path / "chats.jsonl"
    chats.write_text('{"prompt": "a", "completion": "b"}\n' * 8)
    fewer = spillway.plan("gpt2-tiny", CONFIG, training_data=[chats], seq_len=4, json=True)
    whole = spillway.plan("gpt2-tiny", CONFIG, training_data=[chats], as_text=True, seq_len=4,
                          json=True)
    assert fewer != document and whole != document
    with pytest.raises(spillway.ArgumentError, match="as_text says how files"):
        spillway.plan("gpt2-tiny", CONFIG, as_text=True)


def test_generation_is_that_of_the_program(program: Any, text: Path, tmp_path: Path) -> None:
    with opened(training_data=text, generate_tokens=16) as engine:
        engine.train_batch()
        said = engine.generate("12 and", 8)
        ids = engine.generate(engine.tokenizer.encode("12 and"), 8)
        assert said == engine.tokenizer.decode(ids) and ids.dtype == np.int32
        drawn = [engine.generate([1, 2], 8, temperature=0.9, top_k=5, seed=s) for s in (3, 3, 4)]
        assert np.array_equal(drawn[0], drawn[1])
        assert engine.generate([1, 2], 8, stop=[int(drawn[0][0])], temperature=0.9, top_k=5,
                               seed=3).tolist() == [drawn[0][0]]
        for wrong, says in (([0.5], "prompt: wanted i32"), ([-1], "an id is below 0"),
                            ([10**6], "1000000")):
            with pytest.raises(spillway.ArgumentError, match=says):
                engine.generate(wrong, 2)
        for wrong in ([2**32 + 5], [-1], [0.5], [[1]]):
            with pytest.raises(spillway.ArgumentError, match="^stop: "):
                engine.generate([1, 2], 2, stop=wrong)
        with pytest.raises(spillway.ArgumentError):
            engine.generate([1] * 16, 2)
        with pytest.raises(spillway.ArgumentError, match="16"):
            engine.generate([1], 2**40)
        for wrong in (dict(temperature=-1.0), dict(temperature=float("nan")), dict(top_p=1.5),
                      dict(top_k=-1), dict(seed=-1), dict(tokens=0), dict(tokens=2**70)):
            with pytest.raises(spillway.ArgumentError, match=f"{next(iter(wrong))} is "):
                engine.generate([1], **wrong)
        engine.export(tmp_path / "model")
    with opened(tmp_path / "model", train=False, seq_len=16, generate_tokens=16) as engine:
        assert engine.tokenizer is None and engine.generate("12 and", 8) == said
    output = program("generate", "--model", tmp_path / "model", "--prompt", "12 and", "--tokens",
                     8).stdout
    assert output.rstrip("\n") == "12 and" + said
    with opened(training_data=text) as engine:
        with pytest.raises(spillway.SpillwayError):
            engine.generate("12", 2)


def test_generation_follows_the_rules_of_the_folder(program: Any, text: Path,
                                                    tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with opened(training_data=text, generate_tokens=16) as engine:
        engine.export(folder)

    def said(**rules: Any) -> List[int]:
        (folder / "generation_config.json").write_text(json.dumps(rules))
        with opened(folder, train=False, seq_len=16, generate_tokens=16) as engine:
            words = engine.generate("12 and", 8)
            ids = engine.generate(engine.tokenizer.encode("12 and"), 8)
            assert engine.tokenizer.decode(ids) == words
        output = program("generate", "--model", folder, "--prompt", "12 and", "--tokens", 8).stdout
        assert output == "12 and" + words + "\n"
        return [int(one) for one in ids]

    first = said()[0]
    assert first not in said(bad_words_ids=[[first]])
    assert said(eos_token_id=first) == [first]
    (folder / "generation_config.json").write_text('{"repetition_penalty": 0}')
    with opened(folder, train=False, seq_len=16, generate_tokens=16) as engine:
        with pytest.raises(spillway.SpillwayError, match="repetition_penalty is 0"):
            engine.generate([1], 2)


def test_tokenizers_and_datasets_stand_alone(text: Path) -> None:
    with spillway.Tokenizer.of_characters(text) as tokenizer:
        ids = tokenizer.encode("12 and 3")
        assert tokenizer.decode(ids) == "12 and 3" and tokenizer.eos == -1
        with pytest.raises(spillway.FormatError, match="vocabulary"):
            tokenizer.encode("12 & 3")
        with spillway.Dataset(text, seq_len=8, tokenizer=tokenizer, seed=3) as data:
            rows = data.rows(5, 2)
            assert np.array_equal(rows["input_ids"][:, 1:], rows["labels"][:, :-1])
            assert len(data) == data.n_tokens // 8 or len(data) == (data.n_tokens - 1) // 8
            with pytest.raises(spillway.ArgumentError, match='wanted "train" or "val"'):
                data.rows(0, 1, "test")
            with pytest.raises(spillway.ArgumentError, match="0 rows"):
                data.rows(0, 0)
    for closed in (lambda: tokenizer.vocab_size, lambda: data.rows(0, 1)):
        with pytest.raises(spillway.ClosedError):
            closed()
    with pytest.raises(spillway.FileError, match="/no/such"):
        spillway.Tokenizer("/no/such")


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_ids_that_are_no_tokens_are_not_taken_for_others(text: Path) -> None:
    with spillway.Tokenizer.of_characters(text) as letters:
        ids = letters.encode("7 and 9")
        for same in (ids, ids.tolist(), ids.astype(np.int64)):
            assert letters.decode(same) == "7 and 9"
        assert letters.decode([]) == "" and letters.decode(ids[0]) == "7"
        assert letters.decode([*ids.tolist(), -100]) == "7 and 9"
        for wrong in (ids.astype(np.int64) + 2**32, ids + 0.5, ids[None], [2**70]):
            with pytest.raises(spillway.ArgumentError):
                raise AssertionError(letters.decode(wrong))


def test_opening_and_closing_leaves_nothing(small: Path, tmp_path: Path) -> None:
    digits = tmp_path / "digits.txt"
    digits.write_text("".join(f"{i * i}\n" for i in range(40)))
    n = int(os.environ.get("SPILLWAY_OPENS", "150"))
    for i in range(n):
        with opened(small) as engine:
            engine.train_batch(batch())
            with pytest.raises(spillway.ArgumentError):
                engine.forward({})
        if i % 4 == 0:
            with opened(small, training_data=digits) as engine:
                engine.train_batch()
        if i == 99:
            gc.collect()
            at_first = resident_bytes()
    gc.collect()
    assert resident_bytes() - at_first < 1 << 20


class Tensor:
    """What load_state_dict asks of a tensor of torch."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def detach(self) -> "Tensor":
        return self

    cpu = float = detach

    def numpy(self) -> Any:
        return self.array

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)


def test_a_state_dict_goes_out_and_in(small: Path) -> None:
    with opened(small) as engine:
        first = engine.state_dict()
        assert {name: a.shape for name, a in first.items()} == engine.parameters
        wanted = [engine.train_batch(batch()) for _ in range(3)]
    with opened(small, seed=7) as engine:
        table = "transformer.wte.weight"
        given: Dict[str, Any] = {name: a.astype(np.float64) for name, a in first.items()}
        given[table] = Tensor(first[table])
        given["lm_head.weight"] = Tensor(first[table])  # the same tensor under another name
        assert engine.load_state_dict(given) == ([], [])
        assert [engine.train_batch(batch()) for _ in range(3)] == wanted


def test_a_state_dict_that_does_not_fit_changes_nothing(small: Path) -> None:
    with opened(small) as engine:
        first, table = engine.state_dict(), "transformer.wte.weight"
        for change, says in [
            ({table: None}, "load_state_dict: missing transformer.wte.weight"),
            ({"more": first[table].copy()}, "load_state_dict: unknown more"),
            ({table: first[table][:3] + 1}, f"{table}: wanted f32[11, 4], got f32[3, 4]"),
            ({table: first[table].astype(np.int32)}, f"{table}: wanted f32[11, 4], got i32[11, 4]"),
        ]:
            given = {name: a + 1 for name, a in first.items()}
            given.update(change)
            given = {name: a for name, a in given.items() if a is not None}
            with pytest.raises(spillway.ArgumentError, match=re.escape(says)):
                engine.load_state_dict(given)
        for name, weight in engine.state_dict().items():
            assert np.array_equal(weight, first[name]), name
        missing, unknown = engine.load_state_dict(
            {"more": first[table], table: first[table] * 2}, strict=False)
        assert set(missing) == set(first) - {table} and unknown == ["more"]
        assert np.array_equal(engine.get_weight(table), first[table] * 2)
