"""What the tests share."""

from __future__ import annotations

import os
import warnings

# Threads that spin while they wait make everything slow where others compute, too.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import torch

import untuned

#: Where networks and batches are. Tests that make steps on a GPU themselves are in `test_cuda.py`.
DEVICE = torch.device(os.environ.get("UNTUNED_TEST_DEVICE", "cpu"))

#: A spec of each method that can be made as it is.
SPECS = {
    "gd": "gd:lr=0.05",
    "clipped-gd": "clipped-gd:lr=0.05,threshold=0.5",
    "polyak": "polyak:f_star=0",
    "polyak-bound": "polyak-bound:lower_bound=-0.5",
}


def spec(name: str) -> str:
    return SPECS.get(name, name)


ALL = [method.name for method in untuned.methods()]


class Network(torch.nn.Module):
    """Matrices, vectors, an embedding, and frozen parts."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 6)
        self.frozen = torch.nn.Linear(6, 6)
        self.hidden = torch.nn.Linear(6, 9)
        self.norm = torch.nn.LayerNorm(9)
        self.out = torch.nn.Linear(9, 3)
        self.frozen.requires_grad_(False)
        self.to(dtype)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        x = self.norm(torch.tanh(self.hidden(x + self.frozen(x))))
        return self.out(x).mean(1)


def batches(count: int, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randint(0, 11, (8, 4), generator=generator).to(DEVICE),
            torch.randint(0, 3, (8,), generator=generator).to(DEVICE),
        )
        for _ in range(count)
    ]


def loss_of(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    tokens, labels = batch
    return torch.nn.functional.cross_entropy(model(tokens), labels)


def network(dtype: torch.dtype = torch.float32, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return Network(dtype).to(DEVICE)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int, seed: int = 0) -> list[float]:
    losses = []
    for batch in batches(steps, seed):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def bits(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(autouse=True)
def strict():
    """One thread, for tiny networks; and no warning that a test does not expect."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Torch's own, of its own code.
        warnings.simplefilter("ignore", FutureWarning)
        yield
