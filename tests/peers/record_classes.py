#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the ids of transformers' tokenizer classes, for src/token/tests/piece_class_test.c and class_files_test.c.

    python3 tests/peers/record_classes.py tests/cases/piece_classes tests/cases/class_files

Wants transformers, sentencepiece and protobuf. The first folder gets small SentencePiece models of the text below, with
a normalization of a few rules, and rows.jsonl: {"model", "file", "settings", "n", "rows"}, a class a line. "file" is the
model's name in a folder of the class, "settings" is tokenizer_config.json, and "n" counts the ids. A row has the "ids"
of a "text", a "pair" or a "target". A text is left out where Spillway's ids differ for a reason that docs/tokens.md
gives.

The second folder gets rows.jsonl: {"kind", "class", "settings", "map", "added", "rows"}, with the contents of
tokenizer_config.json, special_tokens_map.json and added_tokens.json beside vocab.json and merges.txt (kind "p") or
vocab.txt ("w"), and vocabularies.json with these files.
"""

import json
import pathlib
import random
import sys
import tempfile

import sentencepiece
import transformers
from sentencepiece import sentencepiece_model_pb2

# ---- SentencePiece models ----

RULES = [("\uff21", "A"), ("\uff22", "B"), ("\uff23", "C"), ("\ufb01", "fi"), ("\u3000", " "), ("\t", " "), ("\n", " "), ("\u00a0", " ")]
NAMES = ["the ship", "the captain", "a boat", "the old sailor", "a storm", "the harbour", "the sea", "two sails", "the wind", "dawn"]
VERBS = ["leaves", "sees", "and", "waits for", "calls", "of", "finds", "turns to", "said to", "with"]
LETTERS = "ABCDEFGIMNORSTUW bcdfghiklmnopqrstuvwxyz ,.:;!?\"'`-() 0 1 2 3 line unknown day fine tab spaces"
MODELS = {
    "fairseq": dict(vocab_size=79, unk_id=0, bos_id=1, eos_id=2, pad_id=-1),
    "t5": dict(vocab_size=79, pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "albert": dict(vocab_size=81, pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"]),
    "deberta": dict(vocab_size=80, pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]",
                    eos_piece="[SEP]", unk_piece="[UNK]"),
}
TEXTS = ["the ship", "The captain said: \"we leave at dawn\"", "  two  spaces and a\ttab\nor a line ", "caf\u00e9 D\u00c9J\u00c0 vu",
         "\uff21\uff22 \ufb01ne\u3000day", "xyz \u4e16\u754c unknown", "a <mask> b", "a  [MASK] b", "<extra_id_0> x <extra_id_99>",
         "<mask_1> and <mask_2> <unk_5>", "ro_RO en_XX", "<s>NOTUSED </s> <pad> <unk> [UNK] [CLS]", "``a'' b", "a,b.c!", "", " ",
         "the<ship>sails"]
PAIRS = [["the ship", "a boat"], ["", "a"]]
FILES = {"fairseq": "sentencepiece.bpe.model", "t5": "spiece.model", "albert": "spiece.model", "deberta": "spm.model"}
PIECE_CASES = [  # model, settings, texts that are left out
    ("fairseq", {"tokenizer_class": "XLMRobertaTokenizer"}, []),
    ("fairseq", {"tokenizer_class": "CamembertTokenizer"}, []),
    # transformers' class has no charsmap
    ("fairseq", {"tokenizer_class": "MBartTokenizer", "tgt_lang": "ro_RO"}, [TEXTS[2], TEXTS[4]]),
    ("fairseq", {"tokenizer_class": "MBart50Tokenizer", "src_lang": "de_DE", "tgt_lang": "ro_RO"}, []),
    ("t5", {"tokenizer_class": "T5Tokenizer"}, []),
    ("t5", {"tokenizer_class": "T5TokenizerFast", "extra_ids": 0}, []),
    ("albert", {"tokenizer_class": "AlbertTokenizer"}, []),
    ("albert", {"tokenizer_class": "AlbertTokenizer", "do_lower_case": False, "keep_accents": True}, []),
    ("deberta", {"tokenizer_class": "DebertaV2Tokenizer"}, []),
    ("deberta", {"tokenizer_class": "DebertaV2TokenizerFast", "do_lower_case": True, "split_by_punct": True}, []),
    ("t5", {"tokenizer_class": "PegasusTokenizer"}, []),
    # a list of more special tokens replaces the user-defined pieces among the added tokens there
    ("fairseq", {"tokenizer_class": "XLMRobertaTokenizer", "additional_special_tokens": ["<new>", "ab"]}, [TEXTS[16]]),
]


def lines(draw):
    for _ in range(400):
        yield " ".join([draw.choice(NAMES), draw.choice(VERBS), draw.choice(NAMES)])
    for _ in range(20):
        yield " ".join(draw.sample(list(LETTERS.replace(" ", "")), 30))
        yield draw.choice(LETTERS.split()[-7:])


def model_of(options):
    """The bytes of a model, without the paths of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        codes = lambda text: " ".join("%X" % ord(c) for c in text)
        rules, text = pathlib.Path(folder, "rules.tsv"), pathlib.Path(folder, "text")
        rules.write_text("".join(codes(left) + "\t" + codes(right) + "\n" for left, right in RULES))
        text.write_text("\n".join(lines(random.Random(1))))
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=folder + "/m", num_threads=1, minloglevel=2, normalization_rule_tsv=str(rules),
            user_defined_symbols=["<ship>"], hard_vocab_limit=False, **options)
        model = sentencepiece_model_pb2.ModelProto()
        model.ParseFromString(pathlib.Path(folder, "m.model").read_bytes())
    model.ClearField("trainer_spec")
    model.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.UNIGRAM
    for key in ["unk_id", "bos_id", "eos_id", "pad_id", "unk_piece", "bos_piece", "eos_piece", "pad_piece"]:
        if key in options:
            setattr(model.trainer_spec, key, options[key])
    model.normalizer_spec.ClearField("normalization_rule_tsv")
    return model.SerializeToString(deterministic=True)


def piece_case(folder, name, settings, left_out):
    with tempfile.TemporaryDirectory() as scratch:
        pathlib.Path(scratch, FILES[name]).write_bytes((folder / (name + ".model")).read_bytes())
        pathlib.Path(scratch, "tokenizer_config.json").write_text(json.dumps(settings))
        tokenizer = transformers.AutoTokenizer.from_pretrained(scratch)
    rows = [{"text": text, "ids": tokenizer(text).input_ids} for text in TEXTS if text not in left_out]
    rows += [{"pair": pair, "ids": tokenizer(*pair).input_ids} for pair in PAIRS]
    if "tgt_lang" in settings:
        rows.append({"target": "a boat", "ids": tokenizer(text_target="a boat").input_ids})
    return {"model": name, "file": FILES[name], "settings": settings, "n": len(tokenizer), "rows": rows}


# ---- vocabularies ----

PAIR = ["<s>", "<pad>", "</s>", "<unk>", "a", "b", "ab", "\u0120", "\u0120a", ".", "<mask>", "<|endoftext|>", "N", "n", "\u010a"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b", ".", "<s>", "</s>", "<pad>", "<mask>", "new", "<", ">"]
VOCABULARIES = {"vocab.json": json.dumps({token: i for i, token in enumerate(PAIR)}),
                "merges.txt": "#version: 0.2\na b\n\u0120 a\n",
                "vocab.txt": "".join(word + "\n" for word in WORDS)}
CLASS_TEXTS = ["ab a", " ab<mask>a", "a <mask> b", "<new> a <New>", "x<|endoftext|> b", " <t> a", "a<user>b", "a  [PAD] b\n", "A <e> b",
               "</s>a <unk>"]


def token(content, lstrip=False, rstrip=False, single_word=False, normalized=False, **more):
    return {"content": content, "lstrip": lstrip, "rstrip": rstrip, "single_word": single_word, "normalized": normalized, **more}


# RoBERTa's <mask> takes the space before it, as in the tokenizer.json of its models; transformers' default is another.
MASK = {"mask_token": token("<mask>", lstrip=True)}
# In lower case <new> and <New> are one text, and which of the two tokens it becomes is no rule of the class.
LEFT_OUT = {"<new>": 16, "<New>": 17}
CLASS_CASES = [  # kind, class, settings, map, added, what transformers reads beside them
    ("p", "RobertaTokenizer", {}, {}, {}, MASK),
    ("p", "RobertaTokenizer", {"mask_token": token("<mask>", lstrip=True, normalized=True, __type="AddedToken")}, {}, {}, {}),
    ("p", "RobertaTokenizer", {}, MASK, {}, {}),
    ("p", "GPT2Tokenizer", {}, {}, {"<new>": 15, "<New>": 16}, {}),
    ("p", "GPT2Tokenizer", {}, {"additional_special_tokens": ["<t>"]}, {"<t>": 15}, {}),
    ("p", "GPT2Tokenizer", {}, {"additional_special_tokens": ["<t>", "<user>"], "pad_token": "[PAD]"}, {"[PAD]": 15}, {}),
    ("p", "GPT2Tokenizer", {"added_tokens_decoder": {"15": token("<new>", lstrip=True, rstrip=True, special=False)},
                            "extra_special_tokens": ["<user>"]}, {"additional_special_tokens": ["<t>"]}, {"<e>": 17}, {}),
    ("p", "Qwen2Tokenizer", {}, {}, {"<new>": 15}, {}),
    ("p", "BartTokenizer", {}, {}, {"<e>": 15}, MASK),
    ("w", "BertTokenizer", {}, {}, {}, {}),
    ("w", "BertTokenizer", {}, {}, LEFT_OUT, {}),
    ("w", "BertTokenizer", {"do_lower_case": False}, {}, {"<New>": 16}, {}),
    ("w", "BertTokenizer", {}, {"additional_special_tokens": ["<t>", "<user>"]}, {"<t>": 16}, {}),
    ("w", "BertTokenizer", {"added_tokens_decoder": {"16": token("<new>", lstrip=True, single_word=True, normalized=True,
                                                                 special=False)}}, {}, {}, {}),
    ("w", "BertTokenizer", {"cls_token": "<s>", "sep_token": "</s>"}, {}, {}, {}),
    ("w", "DistilBertTokenizer", {}, {}, {}, {}),
    ("w", "MPNetTokenizer", {}, {}, {"<e>": 16}, {}),
]


def class_case(kind, name, settings, special, added, beside):
    files = {"tokenizer_config.json": settings, "special_tokens_map.json": {**beside, **special}, "added_tokens.json": added,
             "config.json": {"tokenizer_class": name}}
    with tempfile.TemporaryDirectory() as scratch:
        for file in ["vocab.json", "merges.txt"] if kind == "p" else ["vocab.txt"]:
            pathlib.Path(scratch, file).write_text(VOCABULARIES[file])
        for file, value in files.items():
            if value:
                pathlib.Path(scratch, file).write_text(json.dumps(value))
        tokenizer = getattr(transformers, name).from_pretrained(scratch)
        rows = [{"text": text, "ids": tokenizer(text).input_ids} for text in CLASS_TEXTS
                if added is not LEFT_OUT or "<New>" not in text]
    return {"kind": kind, "class": name, "settings": settings, "map": special, "added": added, "rows": rows}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main(pieces, vocabularies):
    pieces.mkdir(parents=True, exist_ok=True)
    vocabularies.mkdir(parents=True, exist_ok=True)
    for name, options in MODELS.items():
        (pieces / (name + ".model")).write_bytes(model_of(options))
    write(pieces / "rows.jsonl", [piece_case(pieces, *case) for case in PIECE_CASES])
    (vocabularies / "vocabularies.json").write_text(json.dumps(VOCABULARIES, indent=1) + "\n")
    write(vocabularies / "rows.jsonl", [class_case(*case) for case in CLASS_CASES])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
