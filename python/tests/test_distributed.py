"""Several ranks on gloo: the same step everywhere, to the bit, and the step that one rank would take."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ALL, batches, loss_of, network, spec

import untuned

STEPS = 10

#: What each rank runs first. It leaves what it wants to tell in `told`.
HEAD = """
import os, sys, warnings
sys.path.insert(0, {tests!r})
import torch
import torch.distributed as dist
from conftest import ALL, batches, loss_of, network, spec
import untuned

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1 + rank % 2)
STEPS, told, folder = {steps}, {{}}, {folder!r}

def part(batch):
    "This rank's part of a batch."
    return [values[rank * 8 // ranks : (rank + 1) * 8 // ranks] for values in batch]

def train(model, optimizer, steps=STEPS, seed=0, bad=None):
    for number, batch in enumerate(batches(steps, seed)):
        optimizer.zero_grad()
        loss = loss_of(model, part(batch))
        if number == bad and rank == ranks - 1:
            loss = loss * float("nan")
        loss.backward()
        optimizer.step()

def sharded(dtype=torch.float64, seed=0):
    from torch.distributed.fsdp import fully_shard
    model = network(dtype, seed)
    fully_shard(model.hidden)
    return fully_shard(model)

def whole(model):
    return {{name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in model.state_dict().items()}}
"""

# torch's gloo aborts now and then when the interpreter ends: "terminate called without an active exception", in 6 of 40 runs of two ranks
# with AdamW, without untuned (torch 2.15). So the process ends at once.
TAIL = """
torch.save(told, folder + "/rank" + str(rank))
dist.barrier()
dist.destroy_process_group()
sys.stderr.flush()
os._exit(0)
"""


def run(folder: Path, code: str, ranks: int = 2) -> list[dict]:
    """What each rank told."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    head = HEAD.format(tests=str(Path(__file__).parent), steps=STEPS, folder=str(folder))
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", head + code + TAIL],
            env={**environment, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        for worker in workers:
            error = worker.communicate(timeout=240)[1]
            assert worker.returncode == 0, error
    finally:
        for worker in workers:
            worker.kill()
    return [torch.load(folder / f"rank{rank}", weights_only=False) for rank in range(ranks)]


def equal(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def alone(name: str, dtype: torch.dtype = torch.float64) -> tuple[torch.nn.Module, untuned.Optimizer]:
    """One rank with whole batches."""
    model = network(dtype)
    optimizer = untuned.optimizer(spec(name), model, total_steps=STEPS + 2)
    for batch in batches(STEPS):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    return model, optimizer


def far(found: dict, model: torch.nn.Module) -> float:
    # Unlike Python's, torch's `max` keeps a NaN.
    wanted = model.state_dict()
    return float(torch.stack([(found[name].double() - wanted[name].double()).abs().max() for name in wanted]).max())


def test_far_sees_what_is_no_number():
    model = network(torch.float64)
    found = {name: value.clone() for name, value in model.state_dict().items()}
    assert far(found, model) == 0
    list(found.values())[-1].view(-1)[0] = float("nan")
    assert not far(found, model) < 1e-9


#: FSDP2 has this name since torch 2.6.
needs_fsdp = pytest.mark.skipif(
    not hasattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard"), reason="torch.distributed.fsdp.fully_shard needs torch 2.6"
)

DDP = """
for name in {names!r}:
    model = torch.nn.parallel.DistributedDataParallel(network({dtype}))
    optimizer = untuned.optimizer(spec(name), model.module, total_steps=STEPS + 2, **{options})
    train(model, optimizer, bad={bad})
    told[name] = whole(model.module), optimizer.steps
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_ddp(tmp_path, ranks):
    names = ["polyak-adam", "polyak-bound", "prodigy"]
    found = run(tmp_path, DDP.format(names=names, dtype="torch.float64", options="{}", bad=None), ranks)
    for name in names:
        assert all(equal(found[0][name][0], rank[name][0]) for rank in found)
        assert far(found[0][name][0], alone(name)[0]) < 1e-9, name


@needs_fsdp
def test_a_bad_loss_on_one_rank_is_refused_on_all(tmp_path):
    names = ["polyak-adam", "prodigy"]
    for code, folder in [(DDP.format(names=names, dtype="torch.float32", options="{}", bad=4), "ddp"), (FSDP_BAD, "fsdp")]:
        (tmp_path / folder).mkdir()
        found = run(tmp_path / folder, code)
        for name in names:
            (a, steps), (b, other) = (rank[name] for rank in found)
            assert equal(a, b) and steps == other == STEPS
            assert all(torch.isfinite(value).all() for value in a.values())


LOSS_ALONE = """
# The loss alone is NaN, of one rank, and only that rank knows a loss at all.
for name in ["prodigy", "adamw"]:
    for wrap in (torch.nn.parallel.DistributedDataParallel, None):
        model = sharded() if wrap is None else wrap(network(torch.float64))
        optimizer = untuned.optimizer(name, getattr(model, "module", model))
        train(model, optimizer, 2)
        before = whole(getattr(model, "module", model))
        loss_of(model, part(batches(1)[0])).backward()
        optimizer._seen = untuned._loss.SeenLoss()
        optimizer.step(float("nan")) if rank == 1 else optimizer.step()
        after = whole(getattr(model, "module", model))
        told[name, wrap is None] = optimizer.refused_steps, all(torch.equal(before[key], after[key]) for key in before)
"""


@needs_fsdp
def test_methods_that_need_no_loss_refuse_a_bad_one_on_all_ranks(tmp_path):
    for told in run(tmp_path, LOSS_ALONE):
        assert told == {(name, shards): (1, True) for name in ("prodigy", "adamw") for shards in (False, True)}


def test_without_the_mean_they_part(tmp_path):
    code = DDP.format(names=["polyak-bound"], dtype="torch.float32", options="{'process_group': False}", bad=None)
    (a, _), (b, _) = (rank["polyak-bound"] for rank in run(tmp_path, code))
    assert not equal(a, b)


FSDP = """
for name in {names!r}:
    model = sharded()
    optimizer = untuned.optimizer(spec(name), model, total_steps=STEPS + 2)
    train(model, optimizer)
    scales = [float(state["scale"]) for state in optimizer.state.values() if "scale" in state]
    before = whole(model)
    with optimizer.evaluation():
        there = whole(model)
    assert all(torch.equal(value, before[name]) for name, value in whole(model).items())
    told[name] = before, there, (optimizer.rate, optimizer.grad_norm), scales
"""

FSDP_BAD = """
for name in ("polyak-adam", "prodigy"):
    model = sharded(torch.float32)
    optimizer = untuned.optimizer(name, model, total_steps=STEPS)
    train(model, optimizer, bad=4)
    told[name] = whole(model), optimizer.steps
"""


@needs_fsdp
@pytest.mark.parametrize("ranks", [2, 4])
def test_fsdp(tmp_path, ranks):
    """Every method on shards takes the steps that it takes on whole tensors."""
    names = ALL if ranks == 2 else ["polyak-adam", "prodigy", "mechanic", "inexact-polyak"]
    found = run(tmp_path, FSDP.format(names=names), ranks)
    for name in names:
        model, optimizer = alone(name)
        before, there, (rate, norm), scales = found[0][name]
        for rank in found:
            assert equal(before, rank[name][0]) and equal(there, rank[name][1]) and rank[name][2:] == found[0][name][2:]
        assert far(before, model) < 1e-9, name
        assert rate == pytest.approx(optimizer.rate, rel=1e-6) and norm == pytest.approx(optimizer.grad_norm, rel=1e-6), name
        wanted = [float(state["scale"]) for state in optimizer.state.values() if "scale" in state]
        assert scales == pytest.approx(wanted, rel=1e-12)
        with optimizer.evaluation():
            assert far(there, model) < 1e-9, name


MIXED = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
model = network(torch.float64)
fully_shard(model.hidden, mesh=mesh)
model.out = torch.nn.parallel.DistributedDataParallel(model.out)
def mean(p):
    dist.all_reduce(p.grad)
    p.grad /= ranks
for p in [*model.embedding.parameters(), *model.norm.parameters()]:
    p.register_post_accumulate_grad_hook(mean)
optimizer = untuned.PolyakAdam(model, total_steps=STEPS + 2)
train(model, optimizer)
told["x"] = {name.replace("module.", ""): value for name, value in whole(model).items()}
"""


@needs_fsdp
def test_shards_beside_replicas(tmp_path):
    """Some tensors are sharded over two ranks and replicated over two, others are whole on all four."""
    found = run(tmp_path, MIXED, 4)
    assert all(equal(found[0]["x"], rank["x"]) for rank in found)
    assert far(found[0]["x"], alone("polyak-adam")[0]) < 1e-9


CHECKPOINT = """
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
for name in ("polyak-adam", "prodigy", "dog"):
    path = folder + "/../" + name
    model = sharded(seed=0 if {save} else 3)
    optimizer = untuned.optimizer(name, model, total_steps=2 * STEPS)
    if {save}:
        train(model, optimizer)
    optimizer.zero_grad()
    model_state, state = get_state_dict(model, optimizer)
    saved = {{"model": model_state, "optimizer": state}}
    if {save}:
        dcp.save(saved, checkpoint_id=path)
    else:
        dcp.load(saved, checkpoint_id=path)
        set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
    train(model, optimizer, seed=1)
    told[name] = whole(model), optimizer.steps
"""


@needs_fsdp
def test_a_sharded_checkpoint_goes_on_with_other_ranks(tmp_path):
    results = []
    for index, (ranks, save) in enumerate([(2, True), (2, False), (4, False)]):
        folder = tmp_path / str(index)
        folder.mkdir()
        results.append(run(folder, CHECKPOINT.format(save=save), ranks)[0])
    for name in ("polyak-adam", "prodigy", "dog"):
        (saved, steps), (same, again), (other, third) = (result[name] for result in results)
        assert steps == again == third == 2 * STEPS
        assert equal(saved, same), f"{name}: as many ranks go on to the same bits"
        assert all(torch.allclose(saved[key], other[key], rtol=0, atol=1e-9) for key in saved), name


ACCUMULATED = """
import untuned._ranks
from untuned import UntunedWarning

def halves(batch):
    return [[values[:len(values) // 2] for values in batch], [values[len(values) // 2:] for values in batch]]

def accumulate(model, optimizer, hold):
    for batch in batches(STEPS):
        optimizer.zero_grad()
        for number, half in enumerate(halves(part(batch))):
            hold(model, number == 0)
            (loss_of(model, half) / 2).backward()
        optimizer.step()

def sync(model, first):
    model.set_requires_gradient_sync(not first)

def all_reduce(model, first):
    model.set_requires_all_reduce(not first)

def made(model, what):
    return untuned.optimizer(spec("polyak-bound"), what(model), total_steps=STEPS + 2)

model = sharded()
accumulate(model, made(model, lambda model: model), sync)
told["module"] = whole(model)
model = sharded()
accumulate(model, made(model, lambda model: list(model.parameters())), sync)
told["parameters"] = whole(model)
if ranks == 4:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = fully_shard(network(torch.float64), mesh=mesh)
    accumulate(model, made(model, lambda model: model), all_reduce)
    told["replicas"] = whole(model)
untuned._ranks._fsdp_groups = lambda: iter(())
model = sharded()
optimizer = made(model, lambda model: model)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", UntunedWarning)
    accumulate(model, optimizer, sync)
told["warnings"] = [str(one.message) for one in caught if issubclass(one.category, UntunedWarning)]
"""


@needs_fsdp
@pytest.mark.parametrize("ranks", [2, 4])
def test_losses_of_gradients_that_fsdp_holds_back(tmp_path, ranks):
    found = run(tmp_path, ACCUMULATED, ranks)
    wanted = alone("polyak-bound")[0]
    for name in ["module", "parameters", "replicas"][: 2 if ranks == 2 else 3]:
        assert all(equal(found[0][name], rank[name]) for rank in found)
        assert far(found[0][name], wanted) < 1e-9, name
    (warning,) = found[0]["warnings"]
    assert "If FSDP2 held it back" in warning and "type optimizer.step(loss)" in warning


REPLACED = """
from torch.distributed.fsdp import fully_shard

def shard_later(name):
    model = network(torch.float64)
    optimizer = untuned.optimizer(spec(name), model, total_steps=STEPS + 2, no_decay=["out"])
    names = [name for name, _ in model.named_parameters()]
    # As Accelerate does: other tensors in between.
    for group in optimizer.param_groups:
        group["params"] = [torch.empty(1) for _ in group["params"]]
    model = fully_shard(model)
    optimizer.param_groups[0]["params"] = [dict(model.named_parameters())[name] for name in names]
    train(model, optimizer)
    return whole(model), optimizer._name(model.out.weight)

for name in ["polyak-adam", "prodigy", "gd"]:
    told[name] = shard_later(name)
"""


@needs_fsdp
def test_shards_that_are_put_in_place_of_parameters(tmp_path):
    found = run(tmp_path, REPLACED)
    for name in ["polyak-adam", "prodigy", "gd"]:
        model = network(torch.float64)
        optimizer = untuned.optimizer(spec(name), model, total_steps=STEPS + 2, no_decay=["out"])
        for batch in batches(STEPS):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        assert equal(found[0][name][0], found[1][name][0])
        assert far(found[0][name][0], model) < 1e-9, name
        assert found[0][name][1] == "parameter 'out.weight'"


ACCELERATE = """
from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.tensor import DTensor
accelerator = Accelerator(cpu=True)
# Accelerate chooses FSDP2 on GPUs only. Its way of preparing a model works on the CPU, too.
accelerator.state.distributed_type = DistributedType.FSDP
accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap", reshard_after_forward=True)
model = network(torch.float64)
optimizer = untuned.PolyakAdam(model, total_steps=STEPS + 2)
model, optimizer = accelerator.prepare(model, optimizer)
assert all(isinstance(p, DTensor) for group in optimizer.param_groups for p in group["params"])
for batch in batches(STEPS):
    optimizer.zero_grad()
    accelerator.backward(loss_of(model, part(batch)))
    optimizer.step()
told["x"] = whole(model), optimizer.optimizer.steps
"""


@needs_fsdp
def test_accelerate_with_fsdp2(tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    found = run(tmp_path, ACCELERATE)
    assert equal(found[0]["x"][0], found[1]["x"][0]) and found[0]["x"][1] == STEPS
    assert far(found[0]["x"][0], alone("polyak-adam")[0]) < 1e-9


REFUSED = """
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.fsdp import FullyShardedDataParallel

def refused(name, make):
    try:
        model, optimizer = make()
        train(model, optimizer, 1)
    except Exception as error:
        told[name] = type(error).__name__ + ": " + str(error)
    dist.barrier()

def seeds():
    model = network(seed=rank)
    return model, untuned.PolyakAdam(model, total_steps=STEPS)

def steps():
    model = network()
    return model, untuned.PolyakAdam(model, total_steps=STEPS + rank)

def zero(name):
    model = torch.nn.parallel.DistributedDataParallel(network())
    trained = [p for p in model.parameters() if p.requires_grad]
    return model, ZeroRedundancyOptimizer(trained, getattr(untuned, name), total_steps=STEPS)

def again():
    model, optimizer = seeds()
    try:
        train(model, optimizer, 1)
    except RuntimeError:
        pass
    return model, optimizer

def flat(use_orig_params):
    model = FullyShardedDataParallel(torch.nn.Linear(4, 4), device_id=torch.device("cpu"), use_orig_params=use_orig_params)
    return model, untuned.PolyakAdam(model, total_steps=STEPS)

def replaced():
    model = network()
    optimizer = untuned.PolyakAdam(model, total_steps=STEPS)
    flat = torch.nn.Parameter(torch.cat([p.detach().flatten() for p in optimizer.param_groups[0]["params"]]))
    optimizer.param_groups[0]["params"] = [flat]
    flat.grad = torch.ones_like(flat)
    optimizer.step(1.0)

def group():
    alone = [dist.new_group([0]), dist.new_group([1])][rank]
    model = sharded()
    return model, untuned.PolyakAdam(model, total_steps=STEPS, process_group=alone)

for name, make in dict(seeds=seeds, steps=steps, again=again, replaced=replaced, group=group).items():
    refused(name, make)
for name in {zeros}:
    refused(name, lambda: zero(name))
for use in (False, True):
    refused("flat" + str(use), lambda: flat(use))
"""


@needs_fsdp
def test_what_ranks_are_refused(tmp_path):
    zeros = ["PolyakAdam", "Prodigy", "DoG", "DAdaptAdam", "Mechanic", "COCOB", "AdamW"]
    for told in run(tmp_path, REFUSED.replace("{zeros}", repr(zeros))):
        assert "rank 1 has other parameter values" in told["again"], "also at the second try"
        assert "rank 1 has other parameter values than rank 0: wrap the model in DistributedDataParallel" in told["seeds"]
        assert "rank 1 has another method, other total_steps or another saved state than rank 0" in told["steps"]
        for name in zeros:
            assert "rank 1 trains other parameters than rank 0, as with ZeroRedundancyOptimizer" in told[name], name
        assert "parameters were replaced after the optimizer was made, as DeepSpeed's ZeRO does" in told["replaced"]
        assert "(1 tensors in place of 9)" in told["replaced"]
        assert "its parts are on 2 ranks, and process_group has 1" in told["group"]
        for use in (False, True):
            assert "belongs to FSDP1" in told[f"flat{use}"] and "fully_shard" in told[f"flat{use}"]
