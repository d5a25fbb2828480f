#!/usr/bin/env python3
"""A report of 10,000 traces of 10,000 rows: its time, its memory, and the size of the page.

The traces are links to twenty files, so that they take 30 MB of disk; they are read 10,000 times.

    cargo build --release && python3 bench/large_report.py [traces] [rows]
"""
import json
import math
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "target/release/untuned"
METHODS = ["inexact-polyak", "decsps", "adasps", "dog", "polyak-bound", "gd:lr=0.1", "anytime-polyak", "level-polyak"]
CONFIG = """name = "gpt"
scale = "quick"
model = "gpt"
preset = "tiny"
rule = "{rule}"
steps = {rows}
seed = {seed}
batch = 8
data = "generated"
device = "cpu"
evaluate_every = 1000
checkpoint_every = 1000
max_refusals = 10
"""


def trace(path, rows, rng):
    with open(path, "w") as file:
        for step in range(rows):
            loss = 1.5 + 2 * math.exp(-step / rows * 4) + 0.1 * rng.random()
            row = {"step": step, "loss": loss, "objective": loss, "grad_norm": rng.random() + 0.5,
                   "step_size": 0.1 / math.sqrt(step + 1), "seconds": step * 0.01}
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


def main():
    traces, rows = (int(a) for a in (sys.argv[1:] + ["10000", "10000"][len(sys.argv) - 1:]))
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        shared = []
        for i in range(20):
            shared.append(root / f"trace-{i}.jsonl")
            trace(shared[-1], rows, rng)
        (root / "runs").mkdir()
        for i in range(traces):
            run, rule, seed = root / "runs" / f"{i:05}", METHODS[i % len(METHODS)], i // len(METHODS)
            run.mkdir()
            os.link(shared[i % 20], run / "trace.jsonl")
            (run / "config.toml").write_text(CONFIG.format(rule=rule, rows=rows, seed=seed))
            losses = {"final_validation_loss": 1.6 + rng.random() / 10, "final_test_loss": 1.6 + rng.random() / 10}
            (run / "eval.jsonl").write_text("".join(
                json.dumps({"step": s, "split": split, "loss": 3.5 - 2 * s / rows}) + "\n"
                for s in range(0, rows + 1, max(rows // 10, 1)) for split in ("validation", "test")))
            (run / "summary.json").write_text(json.dumps({
                "rule": rule, "steps": rows, "seed": seed, "final_train_loss": 1.6, **losses,
                "best_validation_loss": 1.6, "best_test_loss": 1.6, "diverged": False, "seconds": 100.0}))
        began = time.perf_counter()
        done = subprocess.run([PROGRAM, "report", root / "runs"], capture_output=True, text=True)
        wall = time.perf_counter() - began
        if done.returncode != 0:
            sys.exit(done.stderr)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(json.dumps({"traces": traces, "rows": rows, "seconds": round(wall, 1), "peak_mib": round(peak / 1024),
                          "gib_read": round(sum(os.path.getsize(shared[i % 20]) for i in range(traces)) / 2**30, 1),
                          "page_mib": round((root / "runs/report.html").stat().st_size / 2**20, 2)}, indent=2))


if __name__ == "__main__":
    main()
