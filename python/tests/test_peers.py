"""Side by side with the official packages, as torch optimizers, over 200 steps."""

from __future__ import annotations

import warnings

import pytest
import torch
from conftest import batches, loss_of, network

import untuned

STEPS = 200


def both(ours, theirs, tolerance: float, evaluates: bool = False) -> None:
    models = [network(torch.float64), network(torch.float64)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizers = [make([p for p in model.parameters() if p.requires_grad]) for make, model in zip((ours, theirs), models)]
    if evaluates:
        optimizers[1].train()
    for step, batch in enumerate(batches(STEPS)):
        for model, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        same(models, tolerance, step)
    if evaluates:
        optimizers[1].eval()
        with optimizers[0].evaluation():
            same(models, tolerance, STEPS)
    start = network(torch.float64)
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(parameters(models[0]), parameters(start))), "it has moved"


def parameters(model):
    return [p.detach() for p in model.parameters() if p.requires_grad]


def same(models, tolerance, step):
    for a, b in zip(*map(parameters, models)):
        assert (a - b).abs().max() <= tolerance, f"step {step}: {(a - b).abs().max()}"


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw(decay):
    both(
        lambda p: untuned.AdamW([{"params": p, "weight_decay": decay}], lr=1e-2),
        lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=decay),
        1e-10,
    )


def test_sgd():
    both(
        lambda p: untuned.SGDMomentum([{"params": p, "weight_decay": 0.01}], lr=0.1, momentum=0.9, nesterov=True, decouple=False),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        1e-10,
    )


def test_adagrad():
    both(
        lambda p: untuned.Adagrad([{"params": p, "weight_decay": 0.01}], lr=0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.1, weight_decay=0.01),
        1e-9,
    )


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_prodigy(decay):
    peer = pytest.importorskip("prodigyopt", reason="prodigyopt is not installed")
    both(
        lambda p: untuned.Prodigy([{"params": p, "weight_decay": decay}]),
        lambda p: peer.Prodigy(p, weight_decay=decay),
        1e-7,
    )


def test_schedule_free_adamw():
    peer = pytest.importorskip("schedulefree", reason="schedulefree is not installed")
    both(
        lambda p: untuned.ScheduleFreeAdamW([{"params": p, "weight_decay": 0.01}], lr=0.01, warmup_steps=10),
        lambda p: peer.AdamWScheduleFree(p, lr=0.01, warmup_steps=10, weight_decay=0.01),
        1e-9,
        evaluates=True,
    )


def test_schedule_free_sgd():
    peer = pytest.importorskip("schedulefree", reason="schedulefree is not installed")
    both(
        lambda p: untuned.ScheduleFreeSGD(p, lr=0.5),
        lambda p: peer.SGDScheduleFree(p, lr=0.5),
        1e-9,
        evaluates=True,
    )


def test_d_adapt_adam():
    peer = pytest.importorskip("dadaptation", reason="dadaptation is not installed")
    both(lambda p: untuned.DAdaptAdam(p), lambda p: peer.DAdaptAdam(p), 1e-7)


def test_d_adapt_sgd():
    peer = pytest.importorskip("dadaptation", reason="dadaptation is not installed")
    both(lambda p: untuned.DAdaptSGD(p, momentum=0.9), lambda p: peer.DAdaptSGD(p, momentum=0.9), 1e-7)
