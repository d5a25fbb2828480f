"""A diffusion model of diffusers on images that this script draws: it learns to see the noise in pictures of a disc."""

import torch
from diffusers import DDPMScheduler, UNet2DModel

import untuned

torch.manual_seed(0)
size = 16


def discs(count):
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    middle = 4 + (size - 8) * torch.rand(2, count, 1, 1)
    distance = ((x - middle[0]) ** 2 + (y - middle[1]) ** 2).sqrt()
    return (2.0 * (distance < 3.5) - 1)[:, None]


model = UNet2DModel(
    sample_size=size, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8,
    down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
)
noise_of = DDPMScheduler(num_train_timesteps=200)
steps = 300
optimizer = untuned.PolyakAdam(model, total_steps=steps)
losses = []
for step in range(steps):
    images = discs(32)
    noise, times = torch.randn_like(images), torch.randint(0, 200, (len(images),))
    seen = model(noise_of.add_noise(images, noise, times), times).sample
    loss = torch.nn.functional.mse_loss(seen, noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

first, last = losses[0], sum(losses[-30:]) / 30
assert last < 0.25 * first
print(f"the loss fell from {first:.3f} to {last:.3f}")
