#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records a Marian tokenizer and what transformers makes of texts with it, for src/token/tests/marian_test.c.

    python3 tests/peers/record_marian.py tests/cases/marian_tokenizer SOURCE TARGET

SOURCE and TARGET are text files in two languages, of which the first 60,000 characters train two SentencePiece
models of 200 pieces: Unigram with rules of its own, and BPE without a space in front. The normalisations are
small, because those of the library have 240 KB. vocab.json lacks some of the pieces. rows.jsonl has
{"text", "source", "target"} with the ids of a text on either side, and {"ids", "decoded", "decoded_plain"} with
and without special tokens.
"""

import json
import pathlib
import random
import sys
import tempfile

import sentencepiece
import transformers

RULES = [("\ufb01", "fi"), ("\uff21", "A"), ("e\u0301", "\u00e9"), ("\u00a0", " "), ("\t", " "), ("\u200b", ""), ("\u2026", "...")]
CODES = [">>fra<<", ">>deu<<"]
EXTRA = ["\u4e2d", "\u2581\u4e2d\u6587", "\u00df"]  # no model has these pieces


def model_of(text, **more):
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder, "rules.tsv")
        codes = lambda text: " ".join("%X" % ord(c) for c in text)
        rules.write_text("".join(codes(left) + "\t" + codes(right) + "\n" for left, right in RULES))
        lines = pathlib.Path(folder, "text")
        lines.write_text(pathlib.Path(text).read_text(errors="replace")[:60000])
        sentencepiece.SentencePieceTrainer.train(input=str(lines), model_prefix=folder + "/m", vocab_size=200, num_threads=1,
                                                 minloglevel=2, normalization_rule_tsv=str(rules), **more)
        return pathlib.Path(folder, "m.model").read_bytes()


def vocab_of(models):
    pieces = ["</s>", "<unk>"] + CODES
    for data in models:
        model = sentencepiece.SentencePieceProcessor(model_proto=data)
        pieces += [model.id_to_piece(i) for i in range(3, model.get_piece_size()) if i % 13 != 5]
    return {piece: i for i, piece in enumerate(dict.fromkeys(pieces + EXTRA + ["<pad>"]))}


def rows_of(tokenizer, texts, draw):
    for text in texts:
        yield {"text": text, "source": tokenizer(text).input_ids, "target": tokenizer(text_target=text).input_ids}
    for _ in range(40):
        pool = [0, 1, 2, len(tokenizer) - 2, len(tokenizer) - 1] if draw.random() < 0.5 else range(len(tokenizer))
        ids = [draw.choice(draw.choice([pool, range(len(tokenizer))])) for _ in range(draw.randrange(12))]
        decode = lambda skip: tokenizer.decode(ids, skip_special_tokens=skip, use_source_tokenizer=False)
        yield {"ids": ids, "decoded": decode(False), "decoded_plain": decode(True)}


def texts_of(files, draw):
    texts = ["", " ", "a", " a ", ">>fra<< a", ">>fra<<a", " >>fra<< a", ">>xyz<< a", ">>", ">><<", "<<", ">>fra<<>>deu<< a",
             "a >>fra<< b", "</s>a", "</s>>>fra<< a", "a<unk>b<pad>", "<s> a", "\ufb01ne \uff21", "e\u0301\u00a0e", "\u4e2d\u6587", "\u4e2d",
             "a\u4e2d\u6587b", "\u00df\u4e2d", "\U0001f642 \u2581", "a\tb\u200bc", "a  b   ", "\u2026 the", "tool of tools", "the <x> thing"]
    for file in files:
        lines = [line.strip() for line in pathlib.Path(file).read_text(errors="replace")[60000:120000].split("\n") if len(line) > 20]
        texts += draw.sample(lines, 15)
    return texts


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    source = model_of(sys.argv[2], user_defined_symbols=["tool"])
    target = model_of(sys.argv[3], model_type="bpe", add_dummy_prefix=False, remove_extra_whitespaces=False)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    (folder / "vocab.json").write_text(json.dumps(vocab_of([source, target]), ensure_ascii=False))
    added = {"content": "<x>", "lstrip": False, "rstrip": False, "single_word": False, "normalized": True, "special": False}
    number = len(vocab_of([source, target]))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"source_lang": "en", "target_lang": "fr", "tokenizer_class": "MarianTokenizer", "added_tokens_decoder": {number: added}}))
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    draw = random.Random(1)
    with open(folder / "rows.jsonl", "w", encoding="utf-8") as out:
        for row in rows_of(tokenizer, texts_of(sys.argv[2:4], draw), draw):
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main()
