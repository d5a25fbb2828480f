"""Where the time of a training step on the GPU goes, kernel by kernel, as NVIDIA's profiler `ncu` measures it.

    python3 bench/kernels.py --model gpt                     # the release binary must have been built
    python3 bench/kernels.py --model t5 --precision bf16 --binary target/release/untuned

The profiler runs every kernel alone, with caches flushed and clocks left as they are, so the sum is above the time of a step.
"""

import argparse
import collections
import csv
import io
import re
import subprocess


def measure(binary, model, precision, batch):
    """(kernel's name, microseconds) of everything that one run launches, in order."""
    step = [binary, "bench", "step", "--model", model, "--preset", "paper", "--device", "cuda:0", "--steps", "1"]
    step += ["--precision", precision] + (["--batch", str(batch)] if batch else [])
    profiler = ["ncu", "--clock-control", "none", "--metrics", "gpu__time_duration.sum", "--csv", "--page", "raw"]
    out = subprocess.run(profiler + step, capture_output=True, text=True, check=True).stdout
    table = out[out.index('"ID"'):]
    for row in csv.DictReader(io.StringIO(table)):
        duration = next((value for key, value in row.items() if key.startswith("gpu__time_duration")), "")
        if row["ID"].strip():
            yield row["Kernel Name"], float(duration.replace(",", "")) / 1e3


def short(name):
    """Names of products are long; what matters is that they are products, and of which tile."""
    tile = re.search(r"\d+x\d+(x\d+)?", name)
    if re.search(r"gemm|cutlass|nvjet|xmma|cublas|splitK", name, re.IGNORECASE):
        return "product " + (tile.group(0) if tile else name[:40])
    return name.split("(")[0]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--model", choices=["gpt", "lstm", "t5"], required=True)
    arguments.add_argument("--precision", default="bf16")
    arguments.add_argument("--batch", type=int)
    arguments.add_argument("--binary", default="target/release/untuned")
    options = arguments.parse_args()
    launched = list(measure(options.binary, options.model, options.precision, options.batch))
    # The updates cut the run into steps; the last whole one counts.
    ends = [index for index, (name, _) in enumerate(launched) if short(name) == "update"]
    step = launched[ends[-2] + 1 : ends[-1] + 1]
    times = collections.defaultdict(list)
    for name, microseconds in step:
        times[short(name)].append(microseconds)
    total = sum(microseconds for _, microseconds in step)
    print(f"{'kernel':48} {'calls':>6} {'µs':>10} {'share':>7}")
    for name, values in sorted(times.items(), key=lambda item: -sum(item[1])):
        print(f"{name:48} {len(values):6} {sum(values):10.1f} {sum(values) / total:7.1%}")
    print(f"{'all':48} {len(step):6} {total:10.1f}")


if __name__ == "__main__":
    main()
