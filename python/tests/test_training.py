# SPDX-License-Identifier: Apache-2.0
"""Training from Python is the training of `spillway train`, bit for bit."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

import spillway
from conftest import CONFIG, losses, opened

STEPS = 6


@pytest.fixture(scope="module")
def run(program: Any, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training by the program."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "ds_config.json").write_text(json.dumps(CONFIG))
    program("train", "--model", "gpt2-tiny", "--data", text, "--deepspeed",
            folder / "ds_config.json", "--steps", STEPS, "--seq-len", 16, "--seed", 5,
            "--output", folder / "out")
    return folder


def test_train_batch_gives_the_loss_curve_of_the_program(run: Path, text: Path,
                                                         tmp_path: Path) -> None:
    with opened(config=run / "ds_config.json", training_data=text, seed=5) as engine:
        curve = [engine.train_batch() for _ in range(STEPS)]
        assert curve == losses(run / "out")
        assert curve[-1] < curve[0]
        engine.export(tmp_path / "model")
    ours, theirs = tmp_path / "model", run / "out" / "model"
    card = {"README.md"}  # it tells of the program's run
    assert {p.name for p in ours.iterdir()} | card == {p.name for p in theirs.iterdir()}
    for name in ("model.safetensors", "config.json", "chars.json"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name


def test_the_loop_of_deepspeeds_tutorial_gives_the_same_curve(run: Path, text: Path) -> None:
    engine, optimizer, loader, scheduler = spillway.initialize(
        model="gpt2-tiny", config=str(run / "ds_config.json"), training_data=str(text), seq_len=16,
        seed=5)
    curve: List[float] = []
    for batch in loader:
        loss = engine(batch)
        engine.backward(loss)
        at_boundary = engine.is_gradient_accumulation_boundary()
        report = engine.step()
        assert (report is not None) == at_boundary
        if report:
            curve.append(report.loss)
            assert engine.get_global_grad_norm() == report.grad_norm
        if engine.global_steps == STEPS:
            break
    assert curve == losses(run / "out")
    assert scheduler.get_last_lr() == [1e-3] and optimizer.param_groups == [{"lr": 1e-3}]
    engine.close()


def test_a_batch_may_come_in_one_piece_in_several_or_from_an_iterator(text: Path) -> None:
    def curve(how: str) -> List[float]:
        with opened(training_data=text) as engine:
            assert (engine.micro_batches, engine.train_micro_batch_size) == (2, 2)
            found = []
            loader = iter(engine.training_dataloader)
            for _ in range(3):
                if how == "iterator":
                    found.append(engine.train_batch(loader))
                    continue
                parts = engine.training_dataloader.step()
                whole = {name: np.concatenate([part[name] for part in parts])
                         for name in parts[0]}
                whole["positions"] = np.arange(16, dtype=np.int32)
                found.append(engine.train_batch(parts if how == "several" else whole))
            return found

    assert curve("one") == curve("several") == curve("iterator")


def test_row_major_arrays_are_not_copied_and_others_give_the_same() -> None:
    from spillway._arrays import as_array, batch_of

    ids = np.arange(64, dtype=np.int32).reshape(4, 16)
    assert batch_of({"input_ids": as_array("input_ids", ids)}).tensors[0].view.data == \
        ids.ctypes.data
    with opened() as engine:
        parts = engine._split({"input_ids": ids, "labels": spillway.shift_labels(ids)})
        assert parts[1]["input_ids"].ctypes.data == ids[2:].ctypes.data
        turned = np.asfortranarray(ids)
        batch = {"input_ids": ids[:2], "labels": spillway.shift_labels(ids[:2])}
        other = {"input_ids": turned[:2], "labels": spillway.shift_labels(turned[:2])}
        assert engine.forward(batch) > 0
        engine.backward()
        first = engine.forward(other)
        engine.backward()
        engine.step()
        assert first > 0
        with pytest.raises(spillway.ArgumentError, match="iterator ended after 1 of 2"):
            engine.train_batch(iter([batch]))


def test_a_checkpoint_continues_to_the_same_bits(text: Path, tmp_path: Path) -> None:
    with opened(training_data=text) as engine:
        assert engine.load_checkpoint(tmp_path) is False
        for _ in range(2):
            engine.train_batch()
        engine.save_checkpoint(tmp_path, val_loss=3.5)
        wanted = [engine.train_batch() for _ in range(2)]
        weights = engine.get_weight("transformer.wte.weight")
    with opened(training_data=text, seed=77) as engine:
        with pytest.raises(spillway.ConfigError, match="seed 42 -> 77"):
            engine.load_checkpoint(tmp_path)
    with opened(training_data=text) as engine:
        assert engine.load_checkpoint(tmp_path) is True
        assert (engine.global_steps, engine.global_samples) == (2, 8)
        assert [engine.train_batch() for _ in range(2)] == wanted
        assert np.array_equal(engine.get_weight("transformer.wte.weight"), weights)


def test_ranks_of_a_launcher_train_what_one_rank_trains(program: Any, text: Path,
                                                        tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.write_text(f"""
import spillway
config = {CONFIG!r}
config["zero_optimization"] = {{"stage": 3}}
config["gradient_accumulation_steps"] = 2 // spillway_ranks
with spillway.initialize("gpt2-tiny", config, training_data={str(text)!r}, seq_len=16,
                         epochs=0.02) as engine:
    curve = [engine.train_batch() for _ in range(3)]
    if engine.rank == 0:
        print("curve", *map(float.hex, curve), engine.total_steps, flush=True)
""".replace("spillway_ranks", "int(__import__('os').environ.get('WORLD_SIZE', 1))"))
    alone = subprocess.run([sys.executable, loop], check=True, text=True, stdout=subprocess.PIPE)
    both = program("launch", "--num-ranks", 2, "--", sys.executable, loop)

    def curve(output: str) -> str:
        return next(line[line.index("curve"):] for line in output.splitlines() if "curve" in line)

    assert curve(both.stdout) == curve(alone.stdout) and "None" not in curve(alone.stdout)


MIXTRAL = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 64,
           "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
           "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4,
           "num_experts_per_tok": 2, "max_position_embeddings": 16}


def test_ranks_along_the_expert_axis_train_rows_of_their_own(program: Any, text: Path,
                                                             tmp_path: Path) -> None:
    config = {**CONFIG, "gradient_accumulation_steps": 1,
              "spillway": {"threads": 1, "mesh": {"expert": 2}}}
    (tmp_path / "config.json").write_text(json.dumps(MIXTRAL))
    (tmp_path / "ds.json").write_text(json.dumps(config))
    loop = tmp_path / "loop.py"
    loop.write_text(f"""
import spillway
folder = {str(tmp_path)!r}
with spillway.initialize(folder + "/config.json", folder + "/ds.json", seq_len=16, seed=5,
                         training_data={str(text)!r}) as engine:
    curve = [engine.train_batch() for _ in range(3)]
    parts = [part for part, _ in zip(engine.training_dataloader, range(1))]
    parts += engine.training_dataloader.step()
    seen = engine.group("expert").all_gather(parts[0]["input_ids"])
    assert (parts[0]["input_ids"] == parts[1]["input_ids"]).all()
    assert (seen[0] != seen[1]).any()
    if engine.rank == 0:
        print("curve", *curve, flush=True)
""")
    both = program("launch", "--num-ranks", 2, "--", sys.executable, loop)
    program("train", "--model", tmp_path / "config.json", "--data", text, "--deepspeed",
            tmp_path / "ds.json", "--steps", 3, "--seq-len", 16, "--seed", 5, "--ranks", 2,
            "--output", tmp_path / "out")
    line = next(line for line in both.stdout.splitlines() if "curve" in line)
    assert [float(loss) for loss in line.split("curve")[1].split()] == losses(tmp_path / "out")


def test_ranks_are_left_with_the_last_reference(program: Any, text: Path, tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.write_text(f"""
import os
import spillway
config = {CONFIG!r}
config["gradient_accumulation_steps"] = 1
found = []
for _ in range(3):
    engine = spillway.initialize("gpt2-tiny", config, training_data={str(text)!r}, seq_len=16)
    engine.train_batch()
    rank = engine.rank
    del engine
    found.append(len(os.listdir("/proc/self/fd")))
if rank == 0:
    print("open", *found, flush=True)
""")
    both = program("launch", "--num-ranks", 2, "--", sys.executable, loop)
    line = next(line for line in both.stdout.splitlines() if "open" in line)
    assert len(set(line.split("open")[1].split())) == 1


def test_stages_of_a_pipeline_give_what_one_rank_gives(program: Any, text: Path,
                                                       tmp_path: Path) -> None:
    loop = tmp_path / "stages.py"
    loop.write_text(f"""
import os
import numpy
import spillway
config = {CONFIG!r}
config["spillway"] = {{"mesh": {{"pipe": int(os.environ.get("WORLD_SIZE", 1))}}}}
with spillway.initialize("gpt2-tiny", config, training_data={str(text)!r}, seq_len=16, epochs=0.02,
                         want_eval=True, want_logits=True) as engine:
    ids = numpy.arange(32, dtype=numpy.int32).reshape(2, 16) % 20
    found = [engine.train_batch() for _ in range(2)]
    found += engine.evaluate({{"input_ids": ids, "labels": ids + 1}})
    logits = engine.logits({{"input_ids": ids}})
    found.append(float(numpy.abs(logits.astype(numpy.float64)).sum()))
    if engine.rank == 0:
        print("found", *map(float.hex, found), logits.shape, flush=True)
""")
    alone = subprocess.run([sys.executable, loop], check=True, text=True, stdout=subprocess.PIPE)
    both = program("launch", "--num-ranks", 2, "--", sys.executable, loop)

    def found(output: str) -> str:
        return next(line[line.index("found"):] for line in output.splitlines() if "found" in line)

    assert found(both.stdout) == found(alone.stdout)


OPEN: Dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "scheduler": {"type": "WarmupDecayLR",
                  "params": {"warmup_num_steps": 2, "warmup_max_lr": "auto",
                             "total_num_steps": "auto"}},
}


def said(lr: float, steps: int) -> Dict[str, Any]:
    """OPEN, with these values written into it."""
    config: Dict[str, Any] = json.loads(json.dumps(OPEN))
    config["optimizer"]["params"]["lr"] = lr
    config["scheduler"]["params"].update(total_num_steps=steps, warmup_max_lr=lr)
    return config


def rates(n: int, **options: Any) -> Any:
    """Losses and rates of so many steps, and what the engine says of their number."""
    with opened(**options) as engine:
        found = [(engine.train_batch(), engine.get_lr()[0]) for _ in range(n)]
        return found, engine.total_steps


def test_lr_and_steps_stand_for_what_the_configuration_leaves_open(text: Path) -> None:
    wanted, nobody = rates(5, config=said(2e-3, 6), training_data=text)
    assert nobody is None and len({rate for _, rate in wanted}) > 2
    assert rates(5, config=OPEN, training_data=text, lr=2e-3, steps=6) == (wanted, 6)
    assert rates(5, config=OPEN, training_data=text, lr=2e-3, steps=9)[0] != wanted
    with pytest.raises(spillway.ConfigError, match="lr is 0.002 and --lr says 0.003"):
        opened(config=said(2e-3, 6), training_data=text, lr=3e-3)


def test_a_configuration_without_an_optimizer_is_trained_by_adamw(text: Path) -> None:
    bare = {"train_micro_batch_size_per_gpu": 2}
    adamw: Any = {"type": "AdamW", "params": {"lr": 2e-3, "betas": [0.9, 0.999], "eps": 1e-8,
                                         "weight_decay": 0}}
    wanted = rates(3, config={**bare, "optimizer": adamw}, training_data=text)
    assert rates(3, config=bare, training_data=text, lr=2e-3) == wanted
    ids = np.arange(32, dtype=np.int32).reshape(2, 16)
    batch = {"input_ids": ids, "labels": spillway.shift_labels(ids)}
    with opened(config=bare, lr=2e-3) as engine:  # without files, too
        engine.train_batch(batch)
        assert engine.get_lr() == [2e-3]
    with opened(config=bare) as engine:
        engine.train_batch(batch)
        assert engine.get_lr() == [5e-5]
    adamw["params"]["lr"] = 5e-5
    assert spillway.plan("gpt2-tiny", bare, training_data=text, seq_len=16, json=True) == \
        spillway.plan("gpt2-tiny", {**bare, "optimizer": adamw}, training_data=text, seq_len=16,
                      json=True)


def test_epochs_are_passes_over_the_data(program: Any, text: Path, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(OPEN))
    program("train", "--model", "gpt2-tiny", "--data", text, "--deepspeed", tmp_path / "ds.json",
            "--epochs", 0.03, "--lr", 2e-3, "--seq-len", 16, "--output", tmp_path / "out")
    wanted = losses(tmp_path / "out")
    found, steps = rates(len(wanted), config=OPEN, training_data=text, lr=2e-3, epochs=0.03)
    assert [loss for loss, _ in found] == wanted and steps == len(wanted) > 3


def test_epochs_of_a_dataset_give_its_steps(text: Path) -> None:
    with spillway.Tokenizer.of_characters(text) as letters, \
            spillway.Dataset(text, seq_len=16, tokenizer=letters, seed=42) as data:
        wanted = math.ceil(0.5 * math.ceil(len(data) / 4))
        for given in (text, data):  # files by the tokenizer of characters, too
            with opened(config=OPEN, training_data=given, tokenizer=letters, lr=2e-3,
                        epochs=0.5) as engine:
                assert engine.total_steps == wanted
            with pytest.raises(spillway.ArgumentError, match="epochs.* steps"):
                opened(config=OPEN, training_data=given, tokenizer=letters, epochs=1e30)
        assert rates(1, config=OPEN, training_data=data, tokenizer=letters, epochs=0.5) == \
            rates(1, config=said(5e-5, wanted), training_data=data, tokenizer=letters,
                  steps=wanted)


@pytest.mark.parametrize("options, says", [
    (dict(lr="3e-5"), "lr: wanted a number, got str"),
    (dict(lr=-1.0), "--lr: wanted a number, at least 0"),
    (dict(lr=True), "lr: wanted a number, got bool"),
    (dict(steps=0), "steps is 0; wanted 1 .."),
    (dict(steps=2.5), "steps is 2.5; wanted a whole number"),
    (dict(epochs=1), "epochs are passes over training_data, but none is given"),
    (dict(epochs=1, steps=1), "steps and epochs exclude each other"),
    (dict(epochs=0.0, training_data="x"), "epochs is 0.0; wanted a number above 0"),
    (dict(steps=3, train=False), "steps: the engine is opened without training"),
])
def test_a_length_that_makes_no_sense_is_refused(options: Dict[str, Any], says: str) -> None:
    with pytest.raises(spillway.SpillwayError, match=re.escape(says)) as caught:
        opened(**options)
    assert isinstance(caught.value, ValueError)
