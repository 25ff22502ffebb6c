# SPDX-License-Identifier: Apache-2.0
"""From Hugging Face's Trainer to this library: the same model, rows and settings, trained by both.

    python3 examples/from_trainer.py OUTPUT

wants torch, transformers and accelerate for the first half. What a script has for Trainer - a
folder with a model, rows with input_ids and labels, settings - stays; `train_with_spillway` is what
takes Trainer's place.
"""

import os
import sys

import numpy as np

STEPS, MICRO_BATCH, ACCUMULATION, SEQ_LEN, VOCABULARY = 8, 2, 2, 32, 64
LR = 1e-3


def rows():
    """Rows to learn: counting in steps of 1 to 7. As Trainer has them, labels are not shifted."""
    made = []
    for i in range(STEPS * MICRO_BATCH * ACCUMULATION):
        ids = (np.arange(SEQ_LEN) * (i % 7 + 1) + i) % VOCABULARY
        labels = ids.copy()
        labels[0] = -100  # no token precedes it, yet Trainer would count it in the mean
        made.append({"input_ids": ids.astype(np.int32), "labels": labels.astype(np.int32)})
    return made


def make_model(folder):
    """What would be a folder of the hub."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCABULARY, n_positions=SEQ_LEN, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0,
        embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0)).save_pretrained(folder)


def train_with_trainer(folder, output):
    """The script as it was."""
    import torch
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, default_data_collator

    class InOrder(Trainer):
        """Trainer shuffles; here both see the rows as they stand."""

        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    arguments = TrainingArguments(
        output_dir=output, max_steps=STEPS, per_device_train_batch_size=MICRO_BATCH,
        gradient_accumulation_steps=ACCUMULATION, learning_rate=LR, weight_decay=0.01,
        lr_scheduler_type="constant", max_grad_norm=1.0, logging_steps=1,
        save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True)
    data = [{name: torch.from_numpy(row).long() for name, row in one.items()} for one in rows()]
    trainer = InOrder(model=model, args=arguments, train_dataset=data,
                      data_collator=default_data_collator)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    return losses, model.state_dict()


def train_with_spillway(folder, output):
    """What takes its place."""
    import spillway

    config = {
        "train_micro_batch_size_per_gpu": MICRO_BATCH,
        "gradient_accumulation_steps": ACCUMULATION,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {
            "lr": LR, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}},
    }
    data, losses = rows(), []
    with spillway.initialize(model=folder, config=config, seq_len=SEQ_LEN) as engine:
        n = MICRO_BATCH * ACCUMULATION
        for step in range(STEPS):
            some = data[step * n:(step + 1) * n]
            losses.append(engine.train_batch({
                "input_ids": np.stack([row["input_ids"] for row in some]),
                # Here the label of a token is the next token.
                "labels": spillway.shift_labels(np.stack([row["labels"] for row in some])),
            }))
        engine.export(output)
        return losses, engine.state_dict()


def main():
    """Both, side by side."""
    output = sys.argv[1]
    folder = os.path.join(output, "start")
    make_model(folder)
    theirs, their_weights = train_with_trainer(folder, os.path.join(output, "trainer"))
    ours, our_weights = train_with_spillway(folder, os.path.join(output, "spillway"))
    print("step  Trainer   Spillway")
    for step, (a, b) in enumerate(zip(theirs, ours), 1):
        print(f"{step:4}  {a:.4f}    {b:.4f}")
    farthest = max(float(np.abs(their_weights[name].numpy() - weight).max())
                   for name, weight in our_weights.items())
    print(f"largest difference of a weight: {farthest:.1e}")


if __name__ == "__main__":
    main()
