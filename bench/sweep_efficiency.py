#!/usr/bin/env python3
"""How busy a sweep of 100 short trials keeps the cores.

Runs the same 100 trials with one worker and with N, each trial on one thread, and prints

  busy        the time in which the N workers had a trial, over N times the sweep's wall time
  efficiency  the sum of the trials' own times, when they run alone, over N times the wall time of N workers

    cargo build --release && python3 bench/sweep_efficiency.py
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "target/release/untuned"
EXPERIMENT = """model = "gpt"
batch = 8
steps = 150
evaluate_every = 150
evaluate_tokens = 4000
shape = { blocks = 2, width = 64, heads = 2, context = 32 }
"""
SWEEP = """experiment = "x.toml"
seeds = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
[[method]]
rule = "gd"
grid.lr = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1]
"""


def sweep(folder, out, workers):
    """The wall time of a sweep, and the times of its trials' processes."""
    command = [PROGRAM, "sweep", "sweep.toml", "--out", out, "--workers", str(workers), "--threads", "1"]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    wall = time.perf_counter() - began
    if done.returncode != 0:
        sys.exit(done.stderr)
    trials = [float(t) for t in re.findall(r"\[([0-9.]+) s\]", done.stderr)]
    assert len(trials) == 100, done.stderr
    return wall, trials


def main():
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else os.cpu_count()
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "x.toml").write_text(EXPERIMENT)
        pathlib.Path(folder, "sweep.toml").write_text(SWEEP)
        alone_wall, alone = sweep(folder, "alone", 1)
        wall, trials = sweep(folder, "side-by-side", workers)
    print(json.dumps({
        "workers": workers,
        "trials": 100,
        "one_worker_s": round(alone_wall, 2),
        "workers_s": round(wall, 2),
        "sum_of_trials_alone_s": round(sum(alone), 2),
        "sum_of_trials_side_by_side_s": round(sum(trials), 2),
        "busy": round(sum(trials) / (workers * wall), 3),
        "efficiency": round(sum(alone) / (workers * wall), 3),
    }, indent=2))


if __name__ == "__main__":
    main()
