"""Steps on a GPU: they do what steps on the CPU do, and never wait for the device."""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import resource
import subprocess
import sys
import warnings

import pytest
import torch
from conftest import ALL, Network, spec

import untuned

if not torch.cuda.is_available():
    pytest.skip("there is no NVIDIA GPU", allow_module_level=True)

GPU = torch.device("cuda", 0)


def network(dtype=torch.float32, seed=0, device=GPU):
    torch.manual_seed(seed)
    return Network(dtype).to(device)


def batches(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randint(0, 11, (8, 4), generator=generator), torch.randint(0, 3, (8,), generator=generator)) for _ in range(count)]


def loss_of(model, batch):
    tokens, labels = (part.to(next(model.parameters()).device) for part in batch)
    return torch.nn.functional.cross_entropy(model(tokens), labels)


def train(model, optimizer, steps, seed=0):
    for batch in batches(steps, seed):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def bits(model):
    return [p.detach().cpu().clone() for p in model.parameters()]


def same_bits(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ALL)
def test_it_follows_the_cpu(name, dtype):
    """Both get the same gradients. After each step the parameters and the state are nearly the same; the state goes on."""
    here, there = network(dtype, device="cpu"), network(dtype)
    optimizers = [untuned.optimizer(spec(name), model, total_steps=200, averaging="ema:0.9") for model in (here, there)]
    steps = 150 if name == "polyak-adam" else 20
    # A change of the last bit may round the other way.
    tolerance = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}[dtype]
    for step, batch in enumerate(batches(steps)):
        here.zero_grad()
        loss = loss_of(here, batch)
        loss.backward()
        for p, q in zip(trained(here), trained(there)):
            q.grad = p.grad.to(GPU)
        for optimizer in optimizers:
            optimizer.step(loss.item())
        for p, q in zip(trained(here), trained(there)):
            size = max(1.0, float(p.detach().abs().max()))
            assert (p.detach() - q.detach().cpu()).abs().max() <= tolerance * size, step
            with torch.no_grad():
                q.copy_(p)
    assert optimizers[0].steps == optimizers[1].steps == steps
    assert optimizers[1].rate == pytest.approx(optimizers[0].rate, rel=1e-4 if dtype != torch.float64 else 1e-9)
    for p, q in zip(trained(here), trained(there)):
        for key, vector in optimizers[0].state[p].items():
            other = optimizers[1].state[q][key].cpu()
            assert torch.allclose(vector, other, rtol=1e-3 if dtype != torch.float64 else 1e-9, atol=tolerance), key
    for model, optimizer in zip((here, there), optimizers):
        with optimizer.evaluation():
            model.point = bits(model)
    rough = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 2.0**-6)
    assert all(torch.allclose(a, b, rtol=rough, atol=rough) for a, b in zip(here.point, there.point))


def busy():
    """Keeps the GPU busy for about a second, and returns an event behind that."""
    torch.cuda._sleep(2_000_000_000)
    event = torch.cuda.Event()
    event.record()
    return event


@contextlib.contextmanager
def no_waiting():
    """Whatever waits for the GPU inside of torch is an error."""
    with warnings.catch_warnings():
        # Torch says that it does not find everything.
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", ["polyak-adam", "prodigy", "schedule-free-adamw", "dog", "inexact-polyak", "mechanic"])
def test_a_step_does_not_wait(name):
    model = network()
    optimizer = untuned.optimizer(name, model, total_steps=40)
    train(model, optimizer, 3)
    batch = batches(1)[0]
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        # A gradient at another address, as after a backward pass that allocates.
        model.out.weight.grad = model.out.weight.grad.clone()
        torch.cuda.synchronize()
        event = busy()
        with no_waiting():
            optimizer.step()
        assert not event.query(), "the step has waited"
        torch.cuda.synchronize()
    assert optimizer.steps == 6


@pytest.mark.parametrize("name", ["polyak-adam", "prodigy", "schedule-free-adamw", "inexact-polyak"])
def test_a_cuda_graph(name):
    batch = [part.to(GPU) for part in batches(1)[0]]

    def make():
        model = network()
        optimizer = untuned.optimizer(name, model, total_steps=300)
        return model, optimizer

    def step(model, optimizer):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()

    model, optimizer = make()
    for _ in range(150):
        step(model, optimizer)
    want, rate = bits(model), optimizer.rate

    model, optimizer = make()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(model, optimizer)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad()
    with torch.cuda.graph(graph):
        loss_of(model, batch).backward()
        optimizer.step()
    for _ in range(140):
        graph.replay()
    torch.cuda.synchronize()
    assert optimizer.steps == 143
    for _ in range(7):
        step(model, optimizer)
    assert same_bits(bits(model), want) and optimizer.rate == rate
    # A graph may outlive its optimizer.
    del optimizer
    gc.collect()
    graph.replay()
    torch.cuda.synchronize()


def test_what_cannot_be_recorded():
    model = network()
    optimizer = untuned.AdaptivePolyak(model)
    train(model, optimizer, 2)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="cannot be recorded in a graph"):
        with torch.cuda.graph(graph):
            for p in trained(model):
                p.grad.zero_()
            optimizer.step(torch.ones((), device=GPU))
    fresh = untuned.Prodigy(network())
    for p in fresh._trained():
        p.grad = torch.ones_like(p)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="make one step before you record a graph"):
        with torch.cuda.graph(graph):
            fresh.step()
    torch.cuda.synchronize()


def test_refused_steps_are_told_later():
    model = network()
    optimizer = untuned.PolyakAdam(model, total_steps=100, max_refusals=3, warn_clipping=False)
    train(model, optimizer, 2)
    optimizer.zero_grad()
    before = bits(model)
    state = {k: v.clone() for k, v in optimizer.state[model.out.weight].items()}
    loss_of(model, batches(1)[0]).backward()
    with torch.no_grad():
        model.out.weight.grad[0, 0] = float("nan")
    optimizer.step(1.0)
    torch.cuda.synchronize()
    assert same_bits(bits(model), before)
    assert all(torch.equal(v, state[k]) for k, v in optimizer.state[model.out.weight].items())
    with pytest.warns(UserWarning, match="step 2: .*The step was not made"):
        train(model, optimizer, 1)
    assert optimizer.refused_steps == 1 and optimizer.steps == 4
    for p in trained(model):
        p.grad = torch.full_like(p, float("inf"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="3 steps in a row were refused"):
            for _ in range(9):
                optimizer.step(1.0)
                torch.cuda.synchronize()
    assert optimizer.refused_steps == 4
    bad = untuned.PolyakAdam(model, total_steps=5)
    train(model, bad, 5)
    with pytest.raises(RuntimeError, match="made for total_steps=5, and they are over"):
        train(model, bad, 2)
        torch.cuda.synchronize()
        train(model, bad, 1)


@pytest.mark.parametrize("unscale", [False, True])
def test_grad_scaler(unscale):
    models = [network(), network()]
    optimizers = [untuned.PolyakAdam(model, total_steps=50) for model in models]
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=4)
    for batch in batches(12):
        for model, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
        loss_of(models[0], batch).backward()
        optimizers[0].step()
        scaler.scale(loss_of(models[1], batch)).backward()
        if unscale:
            scaler.unscale_(optimizers[1])
        scaler.step(optimizers[1])
        scaler.update()
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(*map(bits, models)))
    assert optimizers[1].steps == 12
    before, scale = bits(models[1]), scaler.get_scale()
    optimizers[1].zero_grad()
    scaler.scale(loss_of(models[1], batches(1)[0])).backward()
    with torch.no_grad():
        models[1].out.weight.grad[0, 0] = float("inf")
    optimizers[1]._options["warn_clipping"] = False
    scaler.step(optimizers[1])
    scaler.update()
    torch.cuda.synchronize()
    assert same_bits(bits(models[1]), before) and scaler.get_scale() == scale / 2
    assert optimizers[1].steps == 13 and optimizers[1].refused_steps == 0


def test_a_step_of_a_grad_scaler_does_not_wait():
    model = network()
    optimizer = untuned.PolyakAdam(model, total_steps=50)
    scaler = torch.amp.GradScaler("cuda")
    for batch in batches(3):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, batch)).backward()
        torch.cuda.synchronize()
        event = busy()
        scaler.step(optimizer)
        waited = event.query()
        scaler.update()
    assert not waited


@pytest.mark.parametrize("name", ["polyak-adam", "prodigy", "adaptive-polyak", "schedule-free-adamw"])
def test_a_run_moves_between_cpu_and_gpu(name):
    model = network()
    optimizer = untuned.optimizer(name, model, total_steps=60)
    train(model, optimizer, 5)
    saved, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    train(model, optimizer, 5, seed=1)
    for device in ("cpu", GPU):
        other = network(seed=3, device=device)
        again = untuned.optimizer(name, other, total_steps=60)
        train(other, again, 2)
        other.load_state_dict(weights)
        again.load_state_dict(saved)
        assert again.steps == 5
        train(other, again, 5, seed=1)
        if device == GPU:
            assert same_bits(bits(model), bits(other))
        assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(bits(model), bits(other)))
    model.cpu()
    with pytest.raises(RuntimeError, match="not on the device of the parameters"):
        train(model, optimizer, 1)


def test_types_layouts_and_addresses():
    """bf16 beside f32 and f64, views at odd addresses, tensors longer than a chunk, none at all, channels last."""

    def parameters(device):
        torch.manual_seed(0)
        flat = torch.randn(50_001, device="cpu").to(device)
        made = [
            flat[1:30_000].clone().requires_grad_(),
            torch.randn(70_003).to(device)[3:].requires_grad_(),
            torch.randn(33, 65, dtype=torch.bfloat16).to(device).requires_grad_(),
            torch.randn(1001, dtype=torch.bfloat16).to(device)[1:].requires_grad_(),
            torch.randn(17, 3, dtype=torch.float64).to(device).requires_grad_(),
            torch.randn(5, dtype=torch.float16).to(device).requires_grad_(),
            torch.zeros(0).to(device).requires_grad_(),
            torch.randn(4, 3, 5, 5).to(device, memory_format=torch.channels_last).requires_grad_(),
            torch.tensor(1.5).to(device).requires_grad_(),
        ]
        return made

    lists = [parameters("cpu"), parameters(GPU)]
    optimizers = [untuned.PolyakAdam([{"params": ps[:4]}, {"params": ps[4:], "lr": 0.5}], total_steps=30) for ps in lists]
    for step in range(12):
        for p, q in zip(*lists):
            generator = torch.Generator().manual_seed(step)
            p.grad = (0.1 * torch.randn(p.shape, generator=generator)).to(p.dtype)
            q.grad = p.grad.to(GPU)
        if step == 6:
            lists[0][1].grad = lists[1][1].grad = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for optimizer in optimizers:
                optimizer.step(2.0)
        for index, (p, q) in enumerate(zip(*lists)):
            tolerance = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 0.04, torch.float16: 4e-3}[p.dtype]
            difference = (p.detach().double() - q.detach().cpu().double()).abs()
            assert difference.numel() == 0 or difference.max() < tolerance, (step, index)
            with torch.no_grad():
                q.copy_(p)


def test_many_steps_take_no_memory():
    parameter = torch.nn.Parameter(torch.ones(50, 50, device=GPU))
    optimizer = untuned.PolyakAdam([parameter], 30_000)
    target = torch.randn(50, 50, device=GPU)

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            (parameter - target).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()

    steps(2000)
    gc.collect()
    objects, device = len(gc.get_objects()), torch.cuda.mem_get_info()[0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    steps(10_000)
    gc.collect()
    assert len(gc.get_objects()) < objects + 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 8192
    assert optimizer.steps == 12_000
    # Other programs may use this GPU.
    assert device - torch.cuda.mem_get_info()[0] < 64 << 20


def test_a_fork_and_the_end_of_the_interpreter():
    """A worker of a DataLoader drops the optimizer; the interpreter ends while a step waits for the GPU."""
    code = """
import os, sys, gc, torch, untuned
model = torch.nn.Linear(3, 3).cuda()
optimizer = untuned.PolyakAdam(model, total_steps=20)
def step():
    optimizer.zero_grad()
    model(torch.ones(2, 3, device="cuda")).square().mean().backward()
    optimizer.step()
step(); step()
torch.cuda.synchronize()
worker = os.fork()
if worker == 0:
    del optimizer
    gc.collect()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 7
step()
assert optimizer.steps == 3
torch.cuda._sleep(500_000_000)
step()
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_torch_compile():
    model = network()
    optimizer = untuned.PolyakAdam(model, total_steps=20)

    @torch.compile(backend="eager")
    def step(batch):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in batches(3):
            step(batch)
    other = network()
    again = untuned.PolyakAdam(other, total_steps=20)
    train(other, again, 3)
    assert optimizer.steps == 3
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(bits(model), bits(other)))


RANKS = '''
import contextlib, os, sys
import torch, torch.distributed as dist
sys.path.insert(0, os.environ["TESTS"])
import untuned
from test_cuda import batches, bits, loss_of, network, no_waiting, same_bits
rank, count, way = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["WAY"]
torch.cuda.set_device(0)
dist.init_process_group("nccl")
model = network()
if way == "fsdp":
    from torch.distributed.fsdp import fully_shard
    fully_shard(model.hidden); fully_shard(model)
else:
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
optimizer = untuned.PolyakAdam(model, total_steps=60)
for step, (tokens, labels) in enumerate(batches(20)):
    part = slice(rank * 8 // count, (rank + 1) * 8 // count)
    optimizer.zero_grad()
    loss_of(model, (tokens[part], labels[part])).backward()
    with no_waiting() if step > 2 else contextlib.nullcontext():
        optimizer.step()
from torch.distributed.tensor import DTensor
full = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
torch.save([p.detach().cpu() for p in full], f"{os.environ['OUT_FILE']}.{rank}")
assert optimizer.steps == 20
dist.barrier(); torch.cuda.synchronize(); os._exit(0)
'''


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_nccl(way, count, tmp_path):
    """Two ranks share the GPU. Different host names let NCCL allow that."""
    if not torch.distributed.is_nccl_available():
        pytest.skip("torch has no NCCL")
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(count):
        env = {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "NCCL_HOSTID": f"rank{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_MULTI_RANK_GPU_ENABLE": "1", "WAY": way, "OUT_FILE": str(tmp_path / "x"),
            "TESTS": os.path.dirname(__file__),
        }  # fmt: skip
        ranks.append(subprocess.Popen([sys.executable, "-c", RANKS], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [rank.communicate(timeout=200)[0] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), "\n".join(text[-3000:] for text in said)
    found = [torch.load(f"{tmp_path}/x.{rank}") for rank in range(count)]
    assert all(same_bits(found[0], other) for other in found), "all ranks are at the same point, to the bit"
    model = network()
    optimizer = untuned.PolyakAdam(model, total_steps=60)
    train(model, optimizer, 20)
    assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(bits(model), found[0]))
