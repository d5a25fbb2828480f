"""Threads, forks, Ctrl-C and the end of the interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings

import pytest
import torch

import untuned

#: A model whose steps have many tasks, and thus run on two threads.
HEAD = """
import os, sys, threading, time
import torch, untuned
torch.set_num_threads(2)
torch.manual_seed(0)
x = torch.nn.Parameter(torch.randn(1000, 1000))
optimizer = untuned.PolyakAdam([x], total_steps=1_000_000, averaging="uniform")

def step():
    x.grad = 0.1 * x.detach()
    optimizer.step(1.0)

"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", HEAD + code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )


POOL = """
for _ in range(3):
    step()
print(untuned._untuned.thread_pool(), x.double().sum().item().hex())
"""


def test_pools():
    """Torch's own threads are found, and a pool of our own makes the same bits."""
    found, rayon = run(POOL), run(POOL, UNTUNED_THREADS="rayon")
    assert found.returncode == rayon.returncode == 0, found.stderr + rayon.stderr
    assert found.stdout.split()[0] == "openmp" and rayon.stdout.split()[0] == "rayon"
    assert found.stdout.split()[1] == rayon.stdout.split()[1]


# Torch's own operations hang in a child if they use threads, so there are none.
FORK = """
import hashlib
step()
x.grad = 0.1 * x.detach()
child = os.fork()
optimizer.step(1.0)
os.write(1, f"{untuned._untuned.thread_pool()} {hashlib.sha256(x.detach().numpy()).hexdigest()}\\n".encode())
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("threads", ["", "rayon"])
def test_a_child_makes_the_same_step(threads):
    done = run(FORK, UNTUNED_THREADS=threads)
    assert done.returncode == 0, done.stderr
    pools, points = zip(*(line.split() for line in done.stdout.splitlines()))
    # A child has none of its parent's threads.
    assert sorted(pools) == (["none", "rayon"] if threads else ["openmp", "rayon"])
    assert points[0] == points[1]


def test_workers_of_a_data_loader():
    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            return torch.full((600, 200), float(i))

    x = torch.nn.Parameter(torch.zeros(600, 200))
    optimizer = untuned.PolyakAdam([x], total_steps=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in torch.utils.data.DataLoader(Numbers(), 2, num_workers=2, multiprocessing_context="fork"):
            optimizer.zero_grad()
            (x - batch).square().mean().backward()
            optimizer.step()
    assert optimizer.steps == 4


CTRL_C = """
print("begun", flush=True)
try:
    while True:
        step()
        with optimizer.evaluation():
            pass
except KeyboardInterrupt:
    steps = optimizer.steps
    # Nothing is half done: the run goes on, and its state can be saved.
    step()
    assert optimizer.steps > steps and bool(torch.isfinite(x).all())
    optimizer.load_state_dict(optimizer.state_dict())
    step()
    print("clean", flush=True)
"""


def test_ctrl_c():
    worker = subprocess.Popen([sys.executable, "-c", HEAD + CTRL_C], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None and worker.stdout.readline() == "begun\n"
        # In the middle of the loop, at whatever it does then.
        threading.Event().wait(0.5)
        worker.send_signal(signal.SIGINT)
        out, error = worker.communicate(timeout=60)
        assert worker.returncode == 0 and out == "clean\n", error
    finally:
        worker.kill()


# The thread calls Rust alone: an operation of torch in such a thread aborts the process, in 10 of 10 runs.
EXIT = """
def measure():
    while True:
        untuned._untuned.squares([x], 2)

threading.Thread(target=measure, daemon=True).start()
time.sleep(0.5)
print("end", flush=True)
"""


def test_the_interpreter_ends_while_a_thread_measures():
    done = run(EXIT)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
