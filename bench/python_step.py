"""Times `step()` of the Python package against torch's fused AdamW, interleaved, on a GPT's shapes.

    python bench/python_step.py [--threads 2] [--rounds 60] [--dtype float32] [--methods polyak-adam,prodigy] [--fused-only] [--tiny]
    python bench/python_step.py --device cuda

A round makes one step of each, in turn, so that a machine that others use slows all alike. The table has the median of the rounds, and
how many times as fast as fused AdamW a step is. Where the official packages are installed, they are timed, too.

On a GPU the time is the device's own, between two events: the GPU is kept busy until the whole step is in its queue. What the calling
thread takes stands beside it.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
import warnings

import torch

import untuned


def shapes(blocks: int, d: int, vocabulary: int, context: int) -> list[tuple[int, ...]]:
    block = [(d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,), (d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
    return [(vocabulary, d), (context, d), *(blocks * block), (d,), (d,)]


#: 21 M numbers in 123 tensors.
SMALL = shapes(blocks=10, d=384, vocabulary=8192, context=256)[:-1]
#: GPT-2: 124 M numbers in 148 tensors.
GPT2 = shapes(blocks=12, d=768, vocabulary=50257, context=1024)


class OnCpu:
    """Times a step by the clock."""

    def step(self, optimizer: torch.optim.Optimizer) -> tuple[float, float]:
        start = time.perf_counter()
        optimizer.step()
        return (time.perf_counter() - start,) * 2


class OnGpu:
    """Times a step by the device, and its calling thread by the clock."""

    def step(self, optimizer: torch.optim.Optimizer) -> tuple[float, float]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        # About 10 ms.
        torch.cuda._sleep(20_000_000)
        start.record()
        begun = time.perf_counter()
        optimizer.step()
        host = time.perf_counter() - begun
        end.record()
        torch.cuda.synchronize()
        return 1e-3 * start.elapsed_time(end), host


def peers(capturable: bool) -> dict:
    made = {
        "torch AdamW fused": lambda ps: torch.optim.AdamW(ps, lr=1e-4, fused=True, capturable=capturable),
        "torch AdamW foreach": lambda ps: torch.optim.AdamW(ps, lr=1e-4, foreach=True, capturable=capturable),
    }
    for package, name, options in [("prodigyopt", "Prodigy", {}), ("schedulefree", "AdamWScheduleFree", {"lr": 1e-4})]:
        try:
            module = importlib.import_module(package)
        except ImportError:
            continue
        made[f"{package} {name}"] = lambda ps, module=module, name=name, options=options: getattr(module, name)(ps, **options)
    return made


def prepare(optimizer: torch.optim.Optimizer) -> None:
    """Turns all gradients around, because methods that estimate a distance would grow without end in one direction. The first tensor's
    comes last, as in a backward pass. Then differentiates a loss of 3 that adds 0 to one gradient: the timed step is a bare `step()`, as
    in a training loop."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter in reversed(parameters):
        parameter.grad.neg_()
    (3.0 + 0.0 * parameters[-1].sum()).backward()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--methods", default="polyak-adam,adamw,prodigy,schedule-free-adamw")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--tiny", action="store_true", help="tensors of one number: what a step takes beside the passes over memory")
    parser.add_argument("--fused-only", action="store_true", help="time no other peer than fused AdamW")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    dtype = getattr(torch, given.dtype)
    total = given.rounds + 200
    on_gpu = given.device != "cpu"
    makers = peers(capturable=on_gpu)
    timer = OnGpu() if on_gpu else OnCpu()
    if given.fused_only:
        makers = {"torch AdamW fused": makers["torch AdamW fused"]}
    # A name has a comma only between methods.
    for spec in given.methods.split(","):
        makers[f"untuned {spec}"] = lambda ps, spec=spec: untuned.optimizer(spec, ps, total_steps=total)
    made = GPT2 if on_gpu else SMALL
    if given.tiny:
        made = [(1,) for _ in made]
    runs = {}
    for name, make in makers.items():
        parameters = [torch.nn.Parameter(0.02 * torch.randn(shape, device=given.device).to(dtype)) for shape in made]
        for p in parameters:
            p.grad = (1e-3 * torch.randn(p.shape, device=given.device)).to(dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer = make(parameters)
        if hasattr(optimizer, "train"):
            optimizer.train()
        runs[name] = (optimizer, [])
    count = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    tensors = sum(len(group["params"]) for group in optimizer.param_groups)
    where = torch.cuda.get_device_name() if on_gpu else f"{given.threads} threads"
    print(f"{count:,} parameters of {given.dtype} in {tensors} tensors, {where}, torch {torch.__version__}")
    # The loss is made up: what a method warns of is no matter here.
    warnings.simplefilter("ignore")
    # Beyond the first hundred steps PolyakAdam measures in one step of eight.
    warm = 110
    for name, (optimizer, _) in runs.items():
        for _ in range(warm if "polyak-adam" in name else 3):
            prepare(optimizer)
            optimizer.step()
    for _ in range(given.rounds):
        for optimizer, times in runs.values():
            prepare(optimizer)
            times.append(timer.step(optimizer))
    table = {name: list(zip(*times)) for name, (_, times) in runs.items()}
    fused = statistics.median(table["torch AdamW fused"][0])
    for name, (times, host) in table.items():
        middle = statistics.median(times)
        beside = f"   host {1e6 * statistics.median(host):7.0f} us" if on_gpu else ""
        print(f"{name:32s} {1e3 * middle:8.3f} ms   mean {1e3 * statistics.fmean(times):8.3f}   {fused / middle:5.2f} x{beside}")


if __name__ == "__main__":
    main()
