#!/usr/bin/env python3
"""Every method on three convex problems: how far above the minimum its last point is, as a table in Markdown.

    cargo build --release
    python3 bench/convex.py [--steps 1000]

Methods that need a rate are tuned on a grid of seven, by the same last point, and the table says which was selected and
whether it lies inside the grid; all others run once, as published. Needs nothing but Python.
"""
import argparse
import json
import subprocess

PROBLEMS = ["logistic", "l4-regression", "sum-exp"]
# What is tuned, and the spec with the rate to be filled in. 1e-4 to 100, for clipping with the threshold 1.
RATES = [1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100]
TUNED = {"adamw": "adamw:lr={},beta2=0.99", "clipped-gd": "clipped-gd:lr={},threshold=1", "gd": "gd:lr={}"}
# `polyak` knows the minimum.
LEFT_OUT = {"polyak"}
NEED_A_RATE = {"sgd-momentum": "sgd-momentum:lr=0.1"}
# The program's exit status.
DIVERGED = 3


def gap(untuned, problem, rule, steps):
    """The last point's gap, or nothing where the run diverged."""
    command = [untuned, "minimize", problem, "--rule", rule, "--steps", str(steps), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode == DIVERGED:
        return None
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)["final"]["gap"]


def words(value):
    if value is None:
        return "diverges"
    return "rounding" if value < 1e-15 else f"{value:.0e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--untuned", default="target/release/untuned")
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    listed = subprocess.run([options.untuned, "rules", "--json"], stdout=subprocess.PIPE, text=True, check=True)
    names = [rule["name"] for rule in json.loads(listed.stdout) if rule["name"] not in LEFT_OUT]

    rows = []
    for name in names:
        cells = []
        if name in TUNED:
            for problem in PROBLEMS:
                found = [(gap(options.untuned, problem, TUNED[name].format(rate), options.steps), rate) for rate in RATES]
                best, rate = min((pair for pair in found if pair[0] is not None), default=(None, None))
                end = ", the end of the grid" if rate in (RATES[0], RATES[-1]) else ""
                cells.append((best, f"{words(best)} ({rate:g}{end})" if rate else words(best)))
            rows.append((f"`{name}`, the best of {len(RATES)} rates", cells))
        if name not in ("gd", "clipped-gd"):
            rule = NEED_A_RATE.get(name, name)
            found = [gap(options.untuned, problem, rule, options.steps) for problem in PROBLEMS]
            rows.append((f"`{rule}`", [(value, words(value)) for value in found]))

    # By the sum of the ranks, so that no problem counts for more than another.
    def rank(column, value):
        finite = [row[1][column][0] for row in rows if row[1][column][0] is not None]
        return len(rows) if value is None else sum(1 for other in finite if max(other, 1e-15) < max(value, 1e-15))

    ordered = sorted(rows, key=lambda row: sum(rank(column, cell[0]) for column, cell in enumerate(row[1])))
    print("| | " + " | ".join(f"`{problem}`" for problem in PROBLEMS) + " |")
    print("|---" * (len(PROBLEMS) + 1) + "|")
    for name, cells in ordered:
        print(f"| {name} | " + " | ".join(text for _, text in cells) + " |")


if __name__ == "__main__":
    main()
