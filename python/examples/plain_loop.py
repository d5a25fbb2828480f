"""A loop of your own: two lines are all that changes."""

import torch

import untuned

torch.manual_seed(0)
x = torch.randn(512, 10)
y = torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]
model = torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))

steps = 600
optimizer = untuned.PolyakAdam(model, total_steps=steps)  # no learning rate, no clipping, no warm-up
losses = []
for step in range(steps):
    batch = torch.randint(0, len(x), (64,))
    loss = torch.nn.functional.mse_loss(model(x[batch]), y[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # untuned reads the loss in backward()
    losses.append(loss.item())

first, last = losses[0], sum(losses[-50:]) / 50
assert last < 0.2 * first
print(f"the loss fell from {first:.3f} to {last:.3f}; the effective rate was {optimizer.rate:.2e} at the end")
