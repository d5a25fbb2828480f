#!/usr/bin/env python3
"""One training step of `untuned` against PyTorch's, on the same machine, in turns.

    cargo build --release
    python3 bench/compare.py --peer torch_baseline.py --python VENV/bin/python [--rounds 7] [--only gpt-tiny] [--threads 2]

The peer is a script that prints one JSON line with "ms" for `--model M --batch B --threads N [--tiny]`, as
`untuned bench step --json` does. Each round runs both, one after the other, so that both see the same machine; the ratio is the
peer's time over ours within a round, and the table has its median with the least and the greatest. Needs nothing but Python.
"""
import argparse
import json
import statistics
import subprocess

# name: model, preset, batch, steps of ours, steps of the peer
CASES = {
    "gpt-paper": ("gpt", "paper", 4, 8, 8),
    "gpt-tiny": ("gpt", "tiny", 8, 120, 60),
    "lstm-paper": ("lstm", "paper", 20, 4, 4),
    "lstm-tiny": ("lstm", "tiny", 80, 40, 30),
    "lstm-tiny-20": ("lstm", "tiny", 20, 80, 40),
    "t5-tiny": ("t5", "tiny", 4, 8, 8),
    "update": ("update", None, None, 20, 20),
}


def milliseconds(command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="the script that runs the same step in PyTorch")
    parser.add_argument("--python", default="python3", help="a Python that has torch")
    parser.add_argument("--untuned", default="target/release/untuned")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", action="append", choices=CASES, help="one case; can be given several times")
    options = parser.parse_args()
    print("| step | untuned, ms | PyTorch, ms | ratio (median) | least to greatest |")
    print("|---|---|---|---|---|")
    for name in options.only or CASES:
        model, preset, batch, our_steps, peer_steps = CASES[name]
        ours = [options.untuned, "bench", "update" if model == "update" else "step", "--json"]
        ours += ["--threads", options.threads, "--steps", our_steps]
        peer = [options.python, options.peer, "--model", model, "--threads", options.threads]
        peer += ["--steps", peer_steps, "--warmup", 2 if preset == "paper" or model == "t5" else 8]
        if model != "update":
            ours += ["--model", model, "--preset", preset, "--batch", batch]
            peer += ["--batch", batch] + (["--tiny"] if preset == "tiny" else [])
        rounds = [(milliseconds(ours), milliseconds(peer)) for _ in range(options.rounds)]
        ratios = sorted(peer / ours for ours, peer in rounds)
        mine, theirs = (statistics.median(column) for column in zip(*rounds))
        print(
            f"| {name} | {mine:.1f} | {theirs:.1f} | **{statistics.median(ratios):.2f}** "
            f"| {ratios[0]:.2f} to {ratios[-1]:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
