"""A script like nanoGPT's train.py, on text that it makes itself. What changes against AdamW are the four lines marked with `#!`."""

import math

import torch
from torch import nn
from torch.nn import functional as F

import untuned  #!

block_size, batch_size, accumulation, max_iters = 32, 12, 2, 100
n_layer, n_head, n_embd = 2, 4, 64
torch.manual_seed(1337)

# Sums such as "7+5=12;", whose end follows from their beginning.
text = "".join(f"{a}+{b}={a + b};" for a, b in torch.randint(0, 10, (4000, 2)).tolist())
letters = sorted(set(text))
data = torch.tensor([letters.index(letter) for letter in text])


def get_batch():
    ix = torch.randint(len(data) - block_size - 1, (batch_size,)).tolist()
    x, y = (torch.stack([data[i + d : i + d + block_size] for i in ix]) for d in (0, 1))
    return x, y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (h.view(b, t, n_head, -1).transpose(1, 2) for h in self.c_attn(self.ln_1(x)).split(n_embd, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(len(letters), n_embd), nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[Block() for _ in range(n_layer)])
        self.ln_f, self.lm_head = nn.LayerNorm(n_embd), nn.Linear(n_embd, len(letters), bias=False)
        self.apply(self.init)
        self.lm_head.weight = self.wte.weight

    def init(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        logits = self.lm_head(self.ln_f(self.blocks(x)))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


model = GPT()
optimizer = untuned.PolyakAdam(model, total_steps=max_iters)  #! in place of configure_optimizers(weight_decay, learning_rate, betas)
losses = []
for iter_num in range(max_iters):
    #! no get_lr(): there is no warm-up and no schedule
    total = 0.0
    for _ in range(accumulation):
        loss = model(*get_batch()) / accumulation
        loss.backward()
        total += loss.item()
    #! no clip_grad_norm_
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    losses.append(total)

first, last = losses[0], sum(losses[-10:]) / 10
assert abs(first - math.log(len(letters))) < 0.5 and last < 1.9
print(f"the loss fell from {first:.3f} to {last:.3f}")
