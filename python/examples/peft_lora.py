"""LoRA with PEFT: only the adapters are trained, and no learning rate is searched.

A LoRA adapter is the product of A, which starts with random numbers, and B, which starts at 0. PolyakAdam measures each matrix in
units of its size at the start. A matrix of zeros has none, so B gets the scale 1, the mean of the other matrices.
"""

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

import untuned

torch.manual_seed(0)
config = GPT2Config(
    vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    bos_token_id=0, eos_token_id=0,
)
model = get_peft_model(GPT2LMHeadModel(config), LoraConfig(r=8, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True))

steps = 80
optimizer = untuned.PolyakAdam(model, total_steps=steps)
losses = []
for step in range(steps):
    tokens = (torch.arange(32) + torch.randint(0, 64, (8, 1))) % 64
    loss = model(input_ids=tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
kept = sum(v.numel() for state in optimizer.state.values() for v in state.values() if v.dim() > 0)
assert kept == 3 * trained, "frozen parameters cost nothing"
first, last = losses[0], sum(losses[-10:]) / 10
assert last < 0.9 * first
print(f"the loss fell from {first:.3f} to {last:.3f}")
