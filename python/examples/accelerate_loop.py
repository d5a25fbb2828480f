"""A loop with Accelerate, with gradients that are accumulated."""

import torch
from accelerate import Accelerator

import untuned

torch.manual_seed(0)
x = torch.randn(1024, 10)
y = (x[:, 0] * x[:, 1] > 0).long()
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=32, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.GELU(), torch.nn.Linear(64, 2))

epochs, accumulation = 15, 2
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation)
optimizer = untuned.PolyakAdam(model, total_steps=epochs * len(data) // accumulation)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
losses = []
for _ in range(epochs):
    for inputs, labels in data:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())

first, last = losses[0], sum(losses[-32:]) / 32
assert optimizer.optimizer.steps == epochs * len(data) // accumulation
assert last < 0.5 * first
print(f"the loss fell from {first:.3f} to {last:.3f}")
