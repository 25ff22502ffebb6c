#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random texts through `spillway tokenize` and through the libraries whose ids it gives.

    python3 tests/peers/same_ids.py build/spillway PATH..      [SEED=1]

PATH: tokenizer.json files (compared with `tokenizers`), *.model files (with `sentencepiece`) and Marian's
folders (with `transformers`, as sources and as targets). Texts are encoded with the template and bare by a
model; random ids are decoded without special tokens, and Marian's with them as well. Exit status 1 where a
text or an id differs, 77 where a library is missing.
"""

import json
import os
import random
import subprocess
import sys

WORDS = (
    list("abcdefghij theing and ABC 123 ,.!'\"_-")
    + "é É ﬁ １ 中 文 🙂 ▁ <s> </s> <unk> <x> [MASK] [CLS] <think> tool <mask> <|endoftext|> <extra_id_1> 's n't ß İ Σ ㍿ ก็ 한".split()
    + ["\u00a0", "\u3000", "\u0301", "\t", "\n", "\r", "\u200b", "A\u030a", "e\u0302\u0323", "\u0085", "\u2028", "\ufffd", "\u00ad",
       "👨\u200d👩", "\u0e33", "\u1e9b\u0323", "  ", "the", "ing", ">>fra<<", ">>", "<<", "<pad>", "tool"]
)


def run(program, path, flags, rows):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    done = subprocess.run([program, "tokenize", "--tokenizer", path, "--json"] + flags, input=lines.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.decode())
    return [json.loads(line) for line in done.stdout.decode().rstrip("\n").split("\n")]


def peers_of(path):
    """[(encode, decode, size, flags of ours, flags of ours for ids)]"""
    plain = ["--no-special"]
    try:
        if os.path.isdir(path):
            import transformers

            marian = transformers.MarianTokenizer.from_pretrained(path)

            def decode(ids, skip=False):
                return marian.decode(ids, skip_special_tokens=skip, use_source_tokenizer=False)

            return [(lambda text: marian(text).input_ids, decode, len(marian), ["--special"], []),
                    (lambda text: marian(text_target=text).input_ids, lambda ids: decode(ids, True), len(marian), ["--target"], plain)]
        if path.endswith(".model"):
            import sentencepiece

            model = sentencepiece.SentencePieceProcessor(model_file=path)
            return [(model.encode, model.decode, model.get_piece_size(), plain, plain)]
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(path)
        return [(lambda text: tokenizer.encode(text).ids, tokenizer.decode, tokenizer.get_vocab_size(), ["--special"], plain)]
    except ImportError as missing:
        print("skipped:", missing)
        sys.exit(77)


def compare(program, path, draw, peer):
    encode, decode, size, flags, flags_of_ids = peer
    texts = ["".join(draw.choice(WORDS) for _ in range(draw.choice([0, 1, 2, 3, 5, 10, 30, 100]))) for _ in range(2500)]
    ids = [[draw.randrange(size) for _ in range(draw.randrange(13))] for _ in range(1500)]
    wrong = 0
    for text, row in zip(texts, run(program, path, flags, [{"text": text} for text in texts])):
        if row["ids"] != encode(text):
            wrong += 1
            print("%r\n  ours  %s\n  peer  %s" % (text, row["ids"], encode(text)))
    for row, out in zip(ids, run(program, path, ["--decode"] + flags_of_ids, [{"ids": row} for row in ids])):
        if out["text"] != decode(row):
            wrong += 1
            print("%s\n  ours  %r\n  peer  %r" % (row, out["text"], decode(row)))
    print("%s: %d texts, %d rows of ids, %d differ" % (path, len(texts), len(ids), wrong))
    return wrong


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    seed = random.Random(int(os.environ.get("SEED", "1")))
    sys.exit(1 if sum(compare(sys.argv[1], path, seed, peer) for path in sys.argv[2:] for peer in peers_of(path)) else 0)
