"""Every method follows the library's own f64 vectors, on a network with matrices, vectors, an embedding and frozen parts."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from conftest import ALL, DEVICE, Network, batches, loss_of, network, spec, train

import untuned
from untuned import _untuned

STEPS = 30


def trained(model: torch.nn.Module) -> list[torch.Tensor]:
    return [p for p in model.parameters() if p.requires_grad]


def reference_of(
    method: str, model: torch.nn.Module, optimizer: untuned.Optimizer, averaging: str | None = None, steps: int = STEPS
):
    parameters = trained(model)
    shapes = [(p.dim() >= 2, p.numel(), float(p.detach().double().square().sum())) for p in parameters]
    scales = _untuned.scales(shapes) if optimizer._session.needs_scales else [1.0] * len(shapes)
    everything = optimizer._session.decays_everything
    tensors = [(p.numel(), everything or p.dim() >= 2, scale) for p, scale in zip(parameters, scales)]
    x0 = flat(parameters).tolist()
    return _untuned.Reference(method, steps, x0, tensors, averaging)


def flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.detach().cpu().double().reshape(-1) for t in tensors])


def fill(model: torch.nn.Module, x: list[float]) -> None:
    values, at = torch.tensor(x, dtype=torch.float64), 0
    for p in trained(model):
        with torch.no_grad():
            p.copy_(values[at : at + p.numel()].view_as(p))
        at += p.numel()


@pytest.mark.parametrize("decay", [None, 0.05])
@pytest.mark.parametrize("name", ALL)
def test_f64(name: str, decay: float | None) -> None:
    model = network(torch.float64)
    frozen = model.frozen.weight.clone()
    # After its first hundred steps it does not measure in each.
    steps = 150 if name == "polyak-adam" else STEPS
    optimizer = untuned.optimizer(spec(name), model, total_steps=steps, weight_decay=decay)
    reference = reference_of(spec(name), model, optimizer, steps=steps)
    decay = optimizer.param_groups[0]["weight_decay"]
    start = flat(trained(model))
    for step, batch in enumerate(batches(steps)):
        # A schedule: the rate's multiplier changes.
        factor = 1.0 - 0.5 * step / steps
        own = optimizer.defaults["lr"]
        optimizer.param_groups[0]["lr"] = own * factor
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        gradient = flat([p.grad for p in trained(model)]).tolist()
        rate = optimizer.param_groups[0]["lr"] / own if optimizer._own_lr else factor
        want = reference.step(loss.item(), gradient, rate, decay)
        optimizer.step()
        assert math.isclose(optimizer.rate, want, rel_tol=1e-9, abs_tol=1e-300), step
        x, wanted = flat(trained(model)), torch.tensor(reference.x, dtype=torch.float64)
        assert (x - wanted).abs().max() <= 1e-12 * wanted.abs().max(), f"step {step}"
        fill(model, reference.x)
    assert not torch.equal(flat(trained(model)), start)
    assert torch.equal(model.frozen.weight, frozen)
    assert model.frozen.weight not in optimizer.state


@pytest.mark.parametrize("name", ALL)
def test_f32(name: str) -> None:
    """The reference goes its own way in f64; both get the same losses and gradients."""
    model, guide = network(torch.float32), Network(torch.float64).to(DEVICE)
    guide.load_state_dict(model.state_dict())
    optimizer = untuned.optimizer(spec(name), model, total_steps=STEPS)
    reference = reference_of(spec(name), model, optimizer)
    decay = optimizer.param_groups[0]["weight_decay"]
    for step, batch in enumerate(batches(STEPS)):
        guide.zero_grad()
        loss = loss_of(guide, batch)
        loss.backward()
        for p, g in zip(trained(model), trained(guide)):
            p.grad = g.grad.float()
        gradient = flat([p.grad for p in trained(model)]).tolist()
        reference.step(loss.item(), gradient, 1.0, decay)
        optimizer.step(loss.item())
        x, wanted = flat(trained(model)), torch.tensor(reference.x, dtype=torch.float64)
        scale = max(1.0, float(wanted.abs().max()))
        assert (x - wanted).abs().max() <= 1e-6 * (step + 1) * scale, f"step {step}"
        fill(guide, reference.x)


@pytest.mark.parametrize("name", ["schedule-free-adamw", "schedule-free-sgd"])
def test_the_point_to_evaluate(name: str) -> None:
    model = network(torch.float64)
    optimizer = untuned.optimizer(name, model)
    reference = reference_of(name, model, optimizer)
    for batch in batches(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        reference.step(loss.item(), flat([p.grad for p in trained(model)]).tolist(), 1.0, 0.0)
        optimizer.step()
    before = flat(trained(model))
    with optimizer.evaluation():
        there = flat(trained(model))
    assert torch.equal(flat(trained(model)), before)
    wanted = torch.tensor(reference.evaluation_point, dtype=torch.float64)
    assert (there - wanted).abs().max() < 1e-12
    assert (there - before).abs().max() > 1e-6


@pytest.mark.parametrize("averaging", ["uniform", "polynomial:8", "exponential:0.9"])
def test_averages(averaging: str) -> None:
    model = network(torch.float64)
    optimizer = untuned.DoG(model, averaging=averaging)
    reference = reference_of("dog", model, optimizer, averaging)
    for batch in batches(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        reference.step(loss.item(), flat([p.grad for p in trained(model)]).tolist(), 1.0, 0.0)
        optimizer.step()
    with optimizer.evaluation():
        there = flat(trained(model))
    wanted = torch.tensor(reference.evaluation_point, dtype=torch.float64)
    assert (there - wanted).abs().max() < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["polyak-adam", "prodigy", "adaptive-polyak"])
def test_the_number_of_threads_changes_no_bit(name: str, dtype: torch.dtype) -> None:
    points = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        # More than one task, and parts of tensors in the same one.
        parameters = [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in [(300, 301), (7,), (130_001,), (5, 5)]]
        optimizer = untuned.optimizer(name, parameters, total_steps=10)
        for step in range(6):
            generator = torch.Generator().manual_seed(step)
            for p in parameters:
                p.grad = (0.1 * torch.randn(p.shape, generator=generator)).to(dtype)
            optimizer.step(2.0 - 0.1 * step)
        points.append([p.detach().clone() for p in parameters])
    assert all(torch.equal(a, b) for a, b in zip(*points))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_are_f32_that_is_rounded(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    narrow = [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in [(70, 31), (1500,)]]
    wide = [torch.nn.Parameter(p.detach().float()) for p in narrow]
    optimizers = [untuned.PolyakAdam(ps, total_steps=10) for ps in (narrow, wide)]
    for step in range(5):
        for n, w in zip(narrow, wide):
            n.grad = (0.1 * torch.randn(n.shape)).to(dtype)
            w.grad = n.grad.float()
        for optimizer in optimizers:
            optimizer.step(1.0)
        for n, w in zip(narrow, wide):
            assert torch.equal(n.detach(), w.detach().to(dtype)), step
            assert optimizers[0].state[n]["m"].dtype == torch.float32
            with torch.no_grad():
                w.copy_(n)
    assert optimizers[0].state[narrow[0]]["m"].abs().max() > 0


def test_layouts() -> None:
    """A channels-last weight with gradients of another layout goes where a plain one does."""
    torch.manual_seed(0)
    plain = torch.nn.Parameter(torch.randn(4, 3, 5, 5))
    last = torch.nn.Parameter(plain.detach().clone().to(memory_format=torch.channels_last))
    optimizers = [untuned.PolyakAdam([p], total_steps=10) for p in (plain, last)]
    for step in range(4):
        gradient = torch.randn(4, 3, 5, 5)
        plain.grad = gradient
        last.grad = gradient if step % 2 else gradient.to(memory_format=torch.channels_last)
        for optimizer in optimizers:
            optimizer.step(1.0)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(plain, last, rtol=1e-6, atol=1e-7)
    assert optimizers[1].state[last]["m"].stride() == last.stride()


def test_late_parameters() -> None:
    """Those that are added or unfrozen in a run get state, and the others keep theirs."""
    model = network()
    optimizer = untuned.PolyakAdam([{"params": model.hidden.parameters()}, {"params": model.out.parameters()}], 40)
    model.embedding.requires_grad_(False)
    train(model, optimizer, 5)
    m = optimizer.state[model.hidden.weight]["m"]
    kept = m.clone()
    model.frozen.requires_grad_(True)
    optimizer.add_param_group({"params": [("frozen", model.frozen.weight)]})
    assert torch.equal(optimizer.state[model.hidden.weight]["m"], kept)
    before = model.frozen.weight.clone()
    train(model, optimizer, 5)
    assert not torch.equal(before, model.frozen.weight)
    assert optimizer.state[model.hidden.weight]["m"] is m and optimizer.steps == 10
    size = model.frozen.weight.detach().square().mean().sqrt()
    assert 0.2 < float(optimizer.state[model.frozen.weight]["scale"]) < 5 and size > 0
    model.embedding.requires_grad_(True)
    optimizer.add_param_group({"params": model.embedding.weight})
    train(model, optimizer, 5)
    assert model.embedding.weight in optimizer.state


def test_many_steps_take_no_memory() -> None:
    import gc
    import resource

    parameter = torch.nn.Parameter(torch.ones(50, 50))
    optimizer = untuned.PolyakAdam([parameter], 30_000)
    target = torch.randn(50, 50)

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            (parameter - target).square().mean().backward()
            optimizer.step()

    steps(1000)
    gc.collect()
    objects = len(gc.get_objects())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    steps(10_000)
    gc.collect()
    assert len(gc.get_objects()) < objects + 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 4096


def test_a_panic_is_an_exception() -> None:
    for threads in (1, 2):
        with pytest.raises(BaseException, match="task 50"):
            _untuned.panics(threads)


def test_without_dlpack() -> None:
    """An older torch has no table of DLPack: tensors are asked through their methods."""
    import os
    import subprocess
    import sys

    code = """
import torch
class Hidden(type(torch.Tensor)):
    pass
if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    del torch.Tensor.__dlpack_c_exchange_api__
import untuned
torch.manual_seed(0)
x = torch.nn.Parameter(torch.randn(3, 4))
o = untuned.PolyakAdam([x], 20)
for _ in range(20):
    o.zero_grad(); x.square().sum().backward(); o.step()
print(x.detach().double().sum().item().hex())
"""
    results = set()
    for script in (code, code.replace("del torch.Tensor", "torch.Tensor")):
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "2"}
        )
        assert done.returncode == 0, done.stderr
        results.add(done.stdout)
    assert len(results) == 1
