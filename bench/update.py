#!/usr/bin/env python3
"""Norm and update of 67 million parameters: methods of `untuned` against PyTorch's fused AdamW, on the same machine, in turns.

    cargo build --release
    python3 bench/update.py --python VENV/bin/python [--rounds 20] [--threads 2] [--device cuda:0] [--rule prodigy …]

Each round runs PyTorch and then every method, so that all see the same machine; the ratio is PyTorch's time over ours within a round.
The table has medians, with the least and the greatest. PyTorch's time is the median of its steps after the first ten, ours that of
`untuned bench update`. Needs nothing but Python, and for the peer one that has torch.
"""
import argparse
import json
import statistics
import subprocess
import sys

PEER = """
import sys, time, torch
device, threads = sys.argv[1], int(sys.argv[2])
if threads:
    torch.set_num_threads(threads)
number = lambda: torch.rand(1 << 26, device=device) * 2 - 1
parameter = torch.nn.Parameter(number())
parameter.grad = number()
adamw = torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.1, fused=True)
wait = torch.cuda.synchronize if device != "cpu" else lambda: None
times = []
for _ in range(110 if device != "cpu" else 40):
    wait()
    start = time.perf_counter()
    parameter.grad.norm().item()
    adamw.step()
    wait()
    times.append(1e3 * (time.perf_counter() - start))
print(sorted(times[10:])[len(times[10:]) // 2])
"""


def output(command):
    return subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True).stdout


def row(name, times, ratios=None):
    def spread(values, digits):
        return f"{statistics.median(values):.{digits}f} | {min(values):.{digits}f} to {max(values):.{digits}f}"

    digits = 1 if statistics.median(times) > 10 else 3
    print(f"| {name} | {spread(times, digits)} | {spread(ratios, 2) if ratios else '1 | '} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="python3", help="a Python that has torch")
    parser.add_argument("--untuned", default="target/release/untuned")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, help="of both; all where it is not given")
    parser.add_argument("--device", default="cpu", help="of both: cpu or cuda:0")
    parser.add_argument("--rule", action="append", help="a method; can be given several times; else adamw and polyak-adam")
    options = parser.parse_args()
    rules = options.rule or ["adamw", "polyak-adam"]
    peer, ours = [], {rule: [] for rule in rules}
    for turn in range(options.rounds):
        peer.append(float(output([options.python, "-c", PEER, options.device, options.threads or 0])))
        for rule in rules:
            command = [options.untuned, "bench", "update", "--json", "--rule", rule, "--device", options.device]
            command += ["--threads", options.threads] if options.threads else []
            ours[rule].append(json.loads(output(command))["ms"])
        now = ", ".join(f"{rule} {times[-1]:.3f}" for rule, times in ours.items())
        print(f"round {turn + 1} of {options.rounds}: PyTorch {peer[-1]:.3f} ms, {now}", file=sys.stderr, flush=True)
    print("| | ms | least to greatest | PyTorch's time over it | least to greatest |")
    print("|---|---|---|---|---|")
    row("PyTorch's fused AdamW", peer)
    for rule, times in ours.items():
        row(f"`{rule}`", times, [theirs / mine for theirs, mine in zip(peer, times)])


if __name__ == "__main__":
    main()
