"""A classifier of timm, a convolutional network with BatchNorm, on images that this script draws: stripes of eight directions."""

import math

import timm
import torch

import untuned

torch.manual_seed(0)
classes, size = 8, 32


def stripes(count):
    labels = torch.randint(0, classes, (count,))
    angles = math.pi * labels / classes
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    along = torch.cos(angles)[:, None, None] * x + torch.sin(angles)[:, None, None] * y
    images = torch.sin(0.8 * along + 2 * math.pi * torch.rand(count, 1, 1))
    return (images + torch.randn_like(images))[:, None], labels


model = timm.create_model("resnet10t", num_classes=classes, in_chans=1)
steps = 120
optimizer = untuned.PolyakAdam(model, total_steps=steps)
losses = []
for step in range(steps):
    images, labels = stripes(32)
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

model.eval()
images, labels = stripes(256)
with torch.no_grad():
    right = (model(images).argmax(1) == labels).float().mean().item()
first, last = losses[0], sum(losses[-10:]) / 10
assert last < 0.2 * first and right > 0.9
print(f"the loss fell from {first:.3f} to {last:.3f}; {100 * right:.0f} % of new images are named right")
