#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random conversations through `spillway tokenize --chat`: are the tokens that count those whose first
character, as `tokenizers` has it, lies in an answer?

    python3 tests/peers/same_masks.py build/spillway TOKENIZER_FOLDER..      [SEED=1]

The template joins the messages as they are, so that answers begin and end anywhere. Exit status 1 where ids or
masks differ, 77 where the library is missing. Tokenizers that take out or join white space (T5's kin) may differ
where an answer begins or ends in some.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
)
PIECES = (
    "a b the quick don't 's ... 123 é ﬁ １２ 🙂 👨‍👩‍👧 中文 naïve ß İ … Ω 한국 ½ Hello <s> </s> <unk> [MASK] <|im_end|> <|im_start|> <|endoftext|>".split()
    + [" ", "  ", "\n", "\n\n", "\t", "e\u0301", "A\u030a", "\u1112\u1161", "\u00a0", " x y", " <mask> "]
)


def conversation(chance):
    """Messages, their text, and where the answers lie in it."""
    messages, spans, text = [], [], ""
    for i in range(chance.randint(2, 6)):
        content = "".join(chance.choice(PIECES) for _ in range(chance.randint(0, 5)))
        if i % 2:
            spans.append((len(text), len(text) + len(content)))
        messages.append({"role": "assistant" if i % 2 else "user", "content": content})
        text += content
    return messages, text, spans


def peer_of(folder, tokenizers):
    """Without the post-processor, which may take white space out of the offsets."""
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        return tokenizers.Tokenizer.from_str(json.dumps({**json.load(f), "post_processor": None}))


def n_different(program, folder, template, tokenizers, chance):
    rows = [conversation(chance) for _ in range(1000)]
    lines = "".join(json.dumps({"messages": messages}) + "\n" for messages, _, _ in rows)
    done = subprocess.run([program, "tokenize", "--chat", "--tokenizer", folder, "--chat-template", template],
                          input=lines.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.decode())
    peer, bad = peer_of(folder, tokenizers), 0
    for (_, text, spans), line in zip(rows, done.stdout.decode().rstrip("\n").split("\n"), strict=True):
        ours, theirs = json.loads(line), peer.encode(text, add_special_tokens=False)
        mask = [int(any(first <= begin < end for first, end in spans)) for begin, _ in theirs.offsets]
        bad += ours["text"] != text or ours["ids"] != theirs.ids or ours["mask"] != mask
    return bad, len(rows)


def main():
    try:
        import tokenizers
    except ImportError:
        print("skipped: there is no tokenizers")
        sys.exit(77)
    chance = random.Random(int(os.environ.get("SEED", "1")))
    any_bad = False
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        template.write(TEMPLATE)
        template.flush()
        for folder in sys.argv[2:]:
            bad, n = n_different(sys.argv[1], folder, template.name, tokenizers, chance)
            print(f"{folder}: {bad} of {n} conversations differ")
            any_bad = any_bad or bad > 0
    sys.exit(1 if any_bad else 0)


if __name__ == "__main__":
    main()
