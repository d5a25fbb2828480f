"""Two ranks on gloo take the same step, to the bit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

WORKER = '''
import os, sys, warnings
sys.path.insert(0, {tests!r})
import torch
import torch.distributed as dist
from conftest import batches, loss_of, network
import untuned

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1 + rank)
options = {options}
model = torch.nn.parallel.DistributedDataParallel(network())
optimizer = untuned.optimizer({spec!r}, model.module, total_steps=12, **options)
for number, (tokens, labels) in enumerate(batches(10)):
    part = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
    optimizer.zero_grad()
    loss = loss_of(model, (tokens[part], labels[part]))
    if number == 4 and rank == ranks - 1:
        loss = loss * float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss.backward()
        optimizer.step()
torch.save([dict(model.module.state_dict()), optimizer.steps], sys.argv[1] + str(rank))
dist.destroy_process_group()
'''


def run(tmp_path: Path, spec: str, ranks: int = 2, options: str = "{}") -> list:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    code = WORKER.format(tests=str(Path(__file__).parent), spec=spec, options=options)
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "rank")],
            env={**environment, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    for worker in workers:
        error = worker.communicate(timeout=120)[1]
        assert worker.returncode == 0, error
    return [torch.load(tmp_path / f"rank{rank}") for rank in range(ranks)]


def equal(a: dict, b: dict) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("spec", ["polyak-adam", "polyak-bound:lower_bound=0"])
def test_ranks_take_the_same_step(tmp_path, spec):
    (a, steps), (b, other) = run(tmp_path, spec)
    assert equal(a, b) and steps == other == 10
    # One rank with the whole batch takes nearly the same one.
    ((alone, _),) = run(tmp_path, spec, ranks=1)
    if spec == "polyak-adam":
        assert all(torch.allclose(a[name], alone[name], atol=2e-3) for name in a)


def test_without_the_mean_they_part(tmp_path):
    (a, _), (b, _) = run(tmp_path, "polyak-bound:lower_bound=0", options="{'process_group': False}")
    assert not equal(a, b)
