# SPDX-License-Identifier: Apache-2.0
"""Files of every task are read as `spillway train` reads them: the same curve, bit for bit."""

from __future__ import annotations

import json
import string
import struct
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

import spillway
from conftest import CONFIG, losses

STEPS = 3
TEMPLATE = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"


def words(folder: Path) -> Path:
    """A tokenizer of BERT's kind: letters and digits."""
    letters = string.ascii_lowercase + string.digits
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, ".", ",", ";"]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(pieces + ["##" + c for c in letters]) + "\n")
    return folder


def byte_level(folder: Path) -> Path:
    """A tokenizer of GPT-2's kind, with a template of chats."""
    tokens = ["<|endoftext|>", "\u0120", "\u010a", *map(chr, range(33, 127))]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|endoftext|>", "chat_template": TEMPLATE}))
    return folder


def classes(folder: Path) -> Dict[str, Any]:
    """A table of two columns, whose labels are words."""
    path = folder / "rows.csv"
    path.write_text("kind,words\n" + "".join(
        f'{("bad", "good", "so so")[i % 3]},"{string.ascii_lowercase[i:]} {i}"\n'
        for i in range(24)))
    return {"model": "bert-tiny", "data": path, "tokenizer": words(folder / "words"),
            "task": "classify", "seq_len": 16, "text_column": "words", "label_column": "kind"}


def answers(folder: Path) -> Dict[str, Any]:
    """SQuAD's format."""
    asked = []
    for i in range(12):
        context = f"the number of box {i} is {i * 7} ."
        answer = {"text": str(i * 7), "answer_start": context.index(f"is {i * 7}") + 3}
        asked.append({"context": context, "qas": [
            {"id": str(i), "question": f"what is in box {i} ?", "answers": [answer]}]})
    path = folder / "squad.json"
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": asked}]}))
    return {"model": "bert-tiny", "data": path, "tokenizer": words(folder / "words"),
            "task": "answers", "seq_len": 48}


def images(folder: Path) -> Dict[str, Any]:
    """CIFAR-10's records."""
    path = folder / "data_batch_1.bin"
    noise = np.random.default_rng(3).integers(0, 256, (16, 3073), dtype=np.uint8)
    noise[:, 0] = np.arange(16) % 10
    path.write_bytes(noise.tobytes())
    return {"model": "cifar-net", "data": path}


def pictures(folder: Path) -> Dict[str, Any]:
    """A folder of PNG files by class, of several sizes."""
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    random = np.random.default_rng(4)
    for i in range(16):
        path = folder / "pictures" / ("cat", "dog")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        height, width = 20 + i, 50 - i
        rows = random.integers(0, 256, (height, 1 + 3 * width), dtype=np.uint8)
        rows[:, 0] = 0
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IDAT", zlib.compress(rows.tobytes())).join([
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), chunk(b"IEND", b"")]))
    config = folder / "vit.json"
    config.write_text(json.dumps({
        "model_type": "vit", "image_size": 16, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 32}))
    return {"model": config, "data": folder / "pictures"}


def chats(folder: Path) -> Dict[str, Any]:
    """Conversations, by the template of the tokenizer."""
    path = folder / "sums.jsonl"
    path.write_text("".join(json.dumps({"messages": [
        {"role": "user", "content": f"{i % 10}+{i // 10}?"},
        {"role": "assistant", "content": str(i % 10 + i // 10)}]}) + "\n" for i in range(24)))
    return {"model": "gpt2-tiny", "data": path, "tokenizer": byte_level(folder / "bytes"),
            "seq_len": 48, "chat_date": "2026-11-22", "loss_on": "all"}


def pairs(folder: Path) -> Dict[str, Any]:
    """Prompts and completions, several in a row."""
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{i}: ", "completion": "x" * (i % 7 + 1)}) + "\n"
                            for i in range(24)))
    return {"model": "gpt2-tiny", "data": path, "tokenizer": byte_level(folder / "bytes"),
            "seq_len": 32, "chat_template": "none", "packing": True}


def by_program(program: Any, given: Dict[str, Any], config: Path, output: Path) -> List[float]:
    flags: List[Any] = []
    for name, value in given.items():
        flags += [] if name == "packing" else ["--" + name.replace("_", "-"), value]
    program("train", *flags, "--deepspeed", config, "--steps", STEPS, "--output", output)
    return losses(output)


@pytest.mark.parametrize("made", [classes, answers, images, pictures, chats, pairs],
                         ids=lambda made: str(made.__name__))
def test_files_of_a_task_are_read_as_the_program_reads_them(
        program: Any, made: Callable[[Path], Dict[str, Any]], tmp_path: Path) -> None:
    if made is pictures and "✓ libpng" not in program("doctor").stdout:
        pytest.skip("built without libpng")
    given = made(tmp_path)
    config = {**CONFIG, "spillway": {"threads": 1, "packing": "packing" in given}}
    (tmp_path / "ds.json").write_text(json.dumps(config))
    wanted = by_program(program, given, tmp_path / "ds.json", tmp_path / "run")
    given.pop("packing", None)
    with spillway.initialize(model=given.pop("model"), config=config,
                             training_data=given.pop("data"), **given) as engine:
        assert [engine.train_batch() for _ in range(STEPS)] == wanted
        engine.export(tmp_path / "model")
    ours, theirs = tmp_path / "model", tmp_path / "run" / "model"
    card = {"README.md"}  # it tells of the program's run
    assert {p.name for p in ours.iterdir()} | card == {p.name for p in theirs.iterdir()}
    for path in ours.iterdir():
        assert (theirs / path.name).read_bytes() == path.read_bytes(), path.name


def test_validation_data_is_the_other_split(tmp_path: Path) -> None:
    given = classes(tmp_path)
    held = tmp_path / "held.csv"
    held.write_text('kind,words\n"good","abc"\n')
    model, data = given.pop("model"), given.pop("data")
    with spillway.initialize(model, CONFIG, training_data=data, validation_data=held,
                             labels=["bad", "good", "so so"], want_eval=True, **given) as engine:
        assert engine.training_dataloader is not None
        dataset = engine.training_dataloader.dataset
        assert (dataset.n_samples(), dataset.n_samples("val")) == (24, 1)
        batch = dataset.rows(0, 2, "val")
        assert batch["labels"].tolist() == [1, -100]  # the row past the last one is blank
        total, count = engine.evaluate(batch)
        assert total > 0 and count == 1


def test_what_says_how_files_are_read_wants_files_and_sense(tmp_path: Path) -> None:
    given = classes(tmp_path)
    model, data = given.pop("model"), given.pop("data")
    with pytest.raises(spillway.ArgumentError, match="text_column .* none are given"):
        spillway.initialize(model, CONFIG, **given)
    with pytest.raises(spillway.SpillwayError, match="nothing"):
        given["label_column"] = "nothing"
        spillway.initialize(model, CONFIG, training_data=data, **given)
    with spillway.Tokenizer.of_characters(data, as_text=True) as letters, \
            pytest.raises(spillway.ArgumentError, match="one of characters .* label_column"):
        spillway.initialize("gpt2-tiny", CONFIG, training_data=data, tokenizer=letters,
                            label_column="kind", seq_len=16)
    with pytest.raises(spillway.ArgumentError, match="--loss-on"):
        spillway.initialize("gpt2-tiny", CONFIG, training_data=chats(tmp_path)["data"],
                            loss_on="some", seq_len=16)


def test_the_tokenizer_of_the_data_lives_as_long_as_its_engine(text: Path) -> None:
    engine = spillway.initialize("gpt2-tiny", CONFIG, training_data=text, seq_len=16,
                                 generate_tokens=16)
    tokenizer = engine.tokenizer
    assert tokenizer is not None and tokenizer.decode(tokenizer.encode("7 and")) == "7 and"
    assert np.array_equal(tokenizer.encode_prompt("7 and"), tokenizer.encode("7 and"))
    assert isinstance(engine.generate("7 and", tokens=2), str)
    engine.close()
    with pytest.raises(spillway.ClosedError, match="the tokenizer is closed"):
        tokenizer.encode("7")


def test_targets_of_marians_tokenizer_have_ids_of_their_own() -> None:
    cases = Path(__file__).parents[2] / "tests" / "cases"
    with spillway.Tokenizer(cases / "marian_tokenizer") as tokenizer:
        source, target = tokenizer.encode("roll", True), tokenizer.encode_target("roll", True)
        assert len(source) != len(target) and source[-1] == target[-1] == tokenizer.eos
        assert tokenizer.decode(source) == tokenizer.decode(target) == "roll"


def test_an_encoder_decoder_reads_a_prompt_in_the_template(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "tests" / "cases" / "marian_tokenizer"
    model = tmp_path / "marian.json"
    config = {
        "model_type": "marian", "architectures": ["MarianMTModel"], "vocab_size": 287,
        "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
        "max_position_embeddings": 24, "pad_token_id": 285, "eos_token_id": 0,
        "decoder_start_token_id": 285}
    options = dict(seq_len=16, target_len=8, generate_tokens=8)
    with spillway.Tokenizer(folder) as tokenizer:
        prompt = tokenizer.encode("the sun", True)
        model.write_text(json.dumps(config))
        with spillway.initialize(model, CONFIG, tokenizer=tokenizer, **options) as engine:
            ids = engine.generate(prompt, tokens=8, stop=[])
            assert len(ids) == 8
            assert engine.generate("the sun", tokens=8, stop=[]) == tokenizer.decode(ids)
        word = int(ids[ids != 0][0])  # the rules do not exclude the end of a text
        model.write_text(json.dumps({**config, "bad_words_ids": [[word]]}))
        with spillway.initialize(model, CONFIG, tokenizer=tokenizer, **options) as engine:
            assert word not in engine.generate(prompt, tokens=8, stop=[])


def test_texts_begin_with_bos_unless_no_bos_is_asked_for(tmp_path: Path) -> None:
    folder, data = byte_level(tmp_path / "words"), tmp_path / "text.txt"
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "!", "eos_token": "<|endoftext|>", "add_bos_token": True}))
    data.write_text("abcdefgh" * 4)
    for no_bos in (False, True):
        with spillway.Tokenizer(folder, no_bos=no_bos) as tokenizer:
            ids = tokenizer.encode("abcdefgh" * 4, special=True)
            assert (ids[0] == tokenizer.encode("!")[0]) is not no_bos
            assert np.array_equal(tokenizer.encode_prompt("ab"), ids[: 3 - no_bos])
            with spillway.Dataset(data, seq_len=16, tokenizer=tokenizer, val_files=data) as rows:
                assert np.array_equal(rows.rows(0, 1, "val")["input_ids"][0], ids[:16])
        with spillway.initialize("gpt2-tiny", CONFIG, training_data=data, validation_data=data,
                                 tokenizer=folder, seq_len=16, no_bos=no_bos) as engine:
            assert engine.training_dataloader is not None and engine.tokenizer is not None
            row = engine.training_dataloader.dataset.rows(0, 1, "val")["input_ids"][0]
            assert np.array_equal(row, ids[:16])
            assert np.array_equal(engine.tokenizer.encode_prompt("ab"), ids[: 3 - no_bos])
    with spillway.Tokenizer(folder) as tokenizer, \
            pytest.raises(spillway.ArgumentError, match="no_bos: .* opened without it"):
        spillway.initialize("gpt2-tiny", CONFIG, tokenizer=tokenizer, no_bos=True)
