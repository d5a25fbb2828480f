"""Hugging Face's Trainer with a tiny GPT-2 that is made from a config."""

import os
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import untuned

set_seed(0)
config = GPT2Config(
    vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    bos_token_id=0, eos_token_id=0,
)
model = GPT2LMHeadModel(config)


class Counting(torch.utils.data.Dataset):
    """Sequences that count in steps of 1 to 5."""

    def __len__(self):
        return 2000

    def __getitem__(self, i):
        tokens = (torch.arange(32) * (1 + i % 5) + i) % 64
        return {"input_ids": tokens, "labels": tokens}


steps = 80
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        max_steps=steps,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **untuned.hugging_face_arguments(),  # no clipping, no schedule, the method's weight decay
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Counting(),
        optimizer_cls_and_kwargs=(untuned.PolyakAdam, {"total_steps": steps}),
    )
    trainer.train()

losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
optimizer = trainer.optimizer.optimizer
assert isinstance(optimizer, untuned.PolyakAdam) and optimizer.steps == steps
assert losses[-1] < 0.5 * losses[0], losses
print(f"the loss fell from {losses[0]:.3f} to {losses[-1]:.3f}")
