#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same small BERT on the same pairs of texts here and in PyTorch, with the loss of sentence-transformers'
MultipleNegativesRankingLoss over all pairs of a step, and compares losses: same_contrastive.py SPILLWAY [STEPS]. Here a step is
cut into micro-batches, and runs on one rank and on two. Wants torch and transformers; without them it says so and ends with 77.
Where sentence-transformers is installed, it reads the exported folder, and its vectors are compared with those of embed."""
import importlib.util, json, os, pathlib, random, subprocess, sys, tempfile

try:
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

PAIRS, MICRO, T, SCALE = 16, 4, 24, 20.0
program = os.path.abspath(sys.argv[1])
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 10
words = "the cat dog sat ran on mat hill red blue big small house tree river over under and slowly".split()
draw = random.Random(3)


def text():
    return " ".join(draw.choice(words) for _ in range(draw.randint(3, 12)))


pairs = [{"anchor": text(), "positive": text()} for _ in range(PAIRS)]
worst = 0


def same_vectors(folder, pooling):
    """The largest difference of a vector of sentence-transformers from that of embed."""
    from sentence_transformers import SentenceTransformer
    texts = [p["anchor"] for p in pairs]
    theirs = SentenceTransformer(folder, device="cpu").encode(texts, normalize_embeddings=True)
    run = subprocess.run([program, "embed", "--model", folder, "--pool", pooling, "--normalize", "--json"], check=True,
                         capture_output=True, text=True, input="".join(t + "\n" for t in texts))
    ours = [json.loads(line)["embedding"] for line in run.stdout.splitlines()]
    return abs(torch.tensor(ours) - torch.tensor(theirs)).max().item()


with tempfile.TemporaryDirectory() as work:
    pathlib.Path(work, "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n")
    tokenizer = BertTokenizerFast(os.path.join(work, "vocab.txt"))
    torch.manual_seed(1)
    config = BertConfig(vocab_size=len(words) + 5, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
                        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    base = os.path.join(work, "base")
    BertModel(config).save_pretrained(base)
    tokenizer.save_pretrained(base)
    pathlib.Path(work, "pairs.jsonl").write_text("".join(json.dumps(p) + "\n" for p in pairs))
    for pooling in ("mean", "cls"):
        pathlib.Path(work, "ds.json").write_text(json.dumps({
            "train_micro_batch_size_per_gpu": MICRO, "gradient_clipping": 1.0,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0}},
            "spillway": {"micro_batches": PAIRS // MICRO, "contrastive": {"pooling": pooling}}}))
        ours = {}
        for ranks in (1, 2):
            out = os.path.join(work, f"run-{pooling}-{ranks}")
            run = subprocess.run([program, "train", "--model", "base", "--task", "contrastive", "--data", "pairs.jsonl", "--deepspeed",
                                  "ds.json", "--seq-len", str(T), "--steps", str(steps), "--ranks", str(ranks),
                                  "--output", out], cwd=work, capture_output=True, text=True)
            if run.returncode != 0:
                print(run.stderr.strip())
                sys.exit(1)
            ours[ranks] = [json.loads(line)["loss"] for line in pathlib.Path(out, "metrics.jsonl").read_text().splitlines()]
        assert ours[1] == ours[2], "ranks change a loss"
        model = BertModel.from_pretrained(base, dtype=torch.float32)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)

        def vectors(key):
            batch = tokenizer([p[key] for p in pairs], padding="max_length", max_length=T, truncation=True, return_tensors="pt")
            hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"][:, :, None].float()
            e = hidden[:, 0] if pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
            return torch.nn.functional.normalize(e)

        for step, loss in enumerate(ours[1]):
            optimizer.zero_grad()
            scores = SCALE * vectors("anchor") @ vectors("positive").T
            theirs = torch.nn.functional.cross_entropy(scores, torch.arange(PAIRS))
            theirs.backward()
            torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 1.0)
            optimizer.step()
            apart = abs(loss - theirs.item()) / theirs.item()
            worst = max(worst, apart)
            print(f"{pooling} step {step + 1}: loss {loss:.8f} and {theirs.item():.8f}, {apart:.1e} apart")
        assert len(ours[1]) == steps
        if importlib.util.find_spec("sentence_transformers"):
            apart = same_vectors(os.path.join(work, f"run-{pooling}-1", "model"), pooling)
            print(f"{pooling}: vectors of sentence-transformers are at most {apart:.1e} apart")
            assert apart < 1e-5
print(f"losses differ by at most {worst:.1e}")
sys.exit(0 if worst < 1e-4 else 1)
