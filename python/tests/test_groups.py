"""Groups of parameters with rates of their own."""

from __future__ import annotations

import pytest
import torch
from conftest import ALL, batches, bits, loss_of, network, same_bits, spec, train

import untuned
OWN_RATES = {name for name in ALL if untuned.optimizer(spec(name), network(), total_steps=1)._session.takes_group_rates}

STEPS = 60


def groups(model, lr: float, other: float):
    return [
        {"params": [*model.embedding.parameters(), *model.norm.parameters(), *model.out.parameters()], "lr": lr},
        {"params": list(model.hidden.parameters()), "lr": other},
    ]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (untuned.AdamW, torch.optim.AdamW),
        (untuned.Adagrad, torch.optim.Adagrad),
        (lambda p, **o: untuned.SGDMomentum(p, momentum=0.9, decouple=False, **o), lambda p, **o: torch.optim.SGD(p, momentum=0.9, **o)),
    ],
    ids=["adamw", "adagrad", "sgd"],
)
def test_they_follow_torch(ours, theirs):
    models = [network(torch.float64), network(torch.float64)]
    lists = [[{**group, "weight_decay": 0.1} for group in groups(model, 0.02, 0.005)] for model in models]
    optimizers = [make(list_, lr=0.02) for make, list_ in zip((ours, theirs), lists)]
    schedulers = [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS) for optimizer in optimizers]
    for step, batch in enumerate(batches(STEPS)):
        for model, optimizer, scheduler in zip(models, optimizers, schedulers):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
            scheduler.step()
        for (name, a), b in zip(models[0].named_parameters(), models[1].parameters()):
            assert (a - b).abs().max() < 1e-9, f"step {step}: {name}"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", sorted(OWN_RATES))
def test_a_part_of_the_rate_is_a_part_of_the_step(name, dtype):
    moved = []
    for part in (1.0, 0.25):
        model = network(dtype)
        own = untuned.optimizer(spec(name), model, total_steps=STEPS).defaults["lr"]
        optimizer = untuned.optimizer(spec(name), groups(model, own, part * own), total_steps=STEPS)
        before = bits(model)
        train(model, optimizer, 1)
        moved.append({name: value.double() - before[name].double() for name, value in bits(model).items()})
        assert optimizer.rate / own == optimizer.param_groups[0]["d"] == optimizer.param_groups[1]["d"]
    whole, less = moved
    for key in whole:
        part = 0.25 if key.startswith("hidden") else 1.0
        size = max(1.0, float(before[key].double().abs().max()))
        rounding = {torch.float64: 1e-15, torch.float32: 2.5e-7, torch.bfloat16: 2.0**-7}[dtype] * size
        assert (less[key] - part * whole[key]).abs().max() <= rounding, key
    # The first step of DoG is too short for bf16.
    assert dtype == torch.bfloat16 or whole["hidden.weight"].abs().max() > 0


@pytest.mark.parametrize("name", ALL)
def test_a_rate_of_0_is_frozen(name):
    """The parameters and their state stay, as if they needed no gradient."""
    models = [network(), network()]
    models[1].hidden.requires_grad_(False)
    own = untuned.optimizer(spec(name), network(), total_steps=STEPS).defaults["lr"]
    made = [groups(models[0], own, 0.0), groups(models[1], own, own)[:1]]
    if untuned.optimizer(spec(name), network(), total_steps=STEPS)._session.needs_scales:
        # The scales are of all matrices, also of those that stay at first.
        models[1].hidden.requires_grad_(True)
        made[1] = groups(models[1], own, own)
    optimizers = [untuned.optimizer(spec(name), each, total_steps=STEPS) for each in made]
    if len(made[1]) == 2:
        optimizers[1]._states(optimizers[1]._trained())
        models[1].hidden.requires_grad_(False)
    for model, optimizer in zip(models, optimizers):
        train(model, optimizer, 8)
    assert same_bits(bits(models[0]), bits(models[1]))
    assert torch.equal(models[0].hidden.weight, network().hidden.weight)
    state = optimizers[0].state[models[0].hidden.weight]
    assert "m" not in state or not state["m"].any()


@pytest.mark.parametrize("name", sorted(set(ALL) - OWN_RATES))
def test_methods_with_one_rate(name):
    model = network()
    own = untuned.optimizer(spec(name), model, total_steps=STEPS).defaults["lr"]
    optimizer = untuned.optimizer(spec(name), groups(model, own, 0.5 * own), total_steps=STEPS)
    before = bits(model)
    with pytest.raises(ValueError, match="has one rate for all parameters, and the groups have lr="):
        train(model, optimizer, 1)
    assert same_bits(bits(model), before) and optimizer.steps == 0


def test_an_average_is_not_slowed():
    model = network(torch.float64)
    optimizer = untuned.DoG(groups(model, 1.0, 0.25), averaging="uniform")
    mean = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for count, batch in enumerate(batches(6), 1):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        for name, p in model.named_parameters():
            mean[name] += (p.detach() - mean[name]) / count
    with optimizer.evaluation():
        for name, p in model.named_parameters():
            assert (p - mean[name]).abs().max() < 1e-13, name
