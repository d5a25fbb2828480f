"""polyak-adam once more, for the tests of ours: from the formula, over the whole history of a run.

Nothing is carried from step to step but the history: every mean is summed anew from all values before it, with weights that are
powers. It needs Python alone. How to run it, from the root of the repository:

    python3 crates/untuned/tests/official/polyak_adam.py

It writes `polyak-adam.json` beside it: for each case the point after every tenth of 500 steps, and the rate of the step that led
there. Of each case it prints the loss at the start, in the middle and at the end, how far a change of the start by 1e-12 has grown,
and in how many steps DoG's step was the longer one and the cap the shorter one.
"""

import json
import math
import pathlib

STEPS = 500
EVERY = 10
START = [3.0, -2.5, 0.25, -0.375, -1.5, 0.75]
# Their lengths, whether they are matrices, and whether they decay.
TENSORS = [(2, True, True), (2, True, False), (2, False, True)]


def loss_and_gradient(x, t):
    """Of Σ (a/2)x² + (b/4)x⁴ + 4 with a = 0.5, 1, …, 3 and b = 0.1, 0.2, …, 0.6, and a push that changes from step to step."""
    push = [0.25 * ((t * i) % 7 - 3) for i in range(1, 7)]
    terms = [0.25 * i * x**2 + 0.025 * i * x**4 + p * x for i, x, p in zip(range(1, 7), x, push)]
    return math.fsum(terms) + 4.0, [0.5 * i * x + 0.1 * i * x**3 + p for i, x, p in zip(range(1, 7), x, push)]


def scales(start):
    """Of every coordinate: the root mean square of its matrix over the geometric mean of that over all numbers of matrices."""
    size, at = [], 0
    for length, matrix, _ in TENSORS:
        numbers = start[at : at + length]
        at += length
        size += [math.sqrt(math.fsum(x * x for x in numbers) / length) if matrix else None] * length
    known = [s for s in size if s is not None]
    typical = math.prod(known) ** (1 / len(known))
    return [1.0 if s is None else s / typical for s in size]


def mean(values, keep):
    """The exponential mean of all values, the last one being the newest, corrected for its start at 0."""
    weights = [(1 - keep) * keep**age for age in reversed(range(len(values)))]
    return math.fsum(w * v for w, v in zip(weights, values)) / (1 - keep ** len(values))


def run(case, start):
    parameters = {"lower_bound": 0.0, "factor": 0.5, "dog": 1.5, "average": 0.99, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
    parameters |= {"cap": "no", "decay": "linear"}
    for pair in case["spec"].partition(":")[2].split(","):
        name, _, value = pair.partition("=")
        if name:
            assert name in parameters, name
            parameters[name] = value if name in ("cap", "decay") else float(value)
    bound, factor, dog = (parameters[name] for name in ("lower_bound", "factor", "dog"))
    keep, beta1, beta2, eps = (parameters[name] for name in ("average", "beta1", "beta2", "eps"))
    cap, horizon = parameters["cap"] == "yes", STEPS if parameters["decay"] == "linear" else math.inf
    scale = scales(start)
    decays = [decay for length, _, decay in TENSORS for _ in range(length)]

    length = 1 / (1 - keep)
    pause = math.floor(length / 12)
    x, path = list(start), []
    gradients, directions, gaps = [], [], []
    # The measured Σ s·g²/D, each once for every step that it stands for; the distances; and when both were last measured.
    squares, distances, square_at, distance_at = [], [], -1, 0
    counts = {"dog": 0, "cap": 0}
    for t in range(STEPS):
        loss, g = loss_and_gradient(x, t)
        gradients.append(g)
        gaps.append(max(loss - bound, 0.0))
        v = [mean([past[i] ** 2 for past in gradients], beta2) for i in range(6)]
        d = [math.sqrt(v) + eps for v in v]
        directions.append([g / d for g, d in zip(g, d)])

        measured = cap or t < length or t - square_at >= pause
        square = math.fsum(s * g * g / d for s, g, d in zip(scale, g, d))
        if measured:
            squares += [square] * (t - square_at)
            square_at = t
            if t - distance_at >= t // 16:
                far = math.fsum((x - x0) ** 2 * d / s for x, x0, d, s in zip(x, start, d, scale))
                distances.append(math.sqrt(far))
                distance_at = t
        polyak = factor * mean(gaps, keep) / mean(squares, keep)
        size = max(polyak, dog * max(distances) / math.sqrt(math.fsum(squares)))
        counts["dog"] += size > polyak
        if cap:
            counts["cap"] += size > gaps[-1] / square
            size = min(size, gaps[-1] / square)
        rate = size * (1 - t / horizon) * min((t + 1) / (case.get("warmup", 0) + 1), 1.0)

        # m itself is not corrected for its start at 0.
        ages = [(1 - beta1) * beta1**age for age in reversed(range(t + 1))]
        m = [math.fsum(w * past[i] for w, past in zip(ages, directions)) for i in range(6)]
        shrunk = [max(1 - rate * case.get("weight_decay", 0.0) * s, 0.0) if decay else 1.0 for s, decay in zip(scale, decays)]
        x = [x * left - rate * s * m for x, left, s, m in zip(x, shrunk, scale, m)]
        path.append((list(x), rate, loss))
    return path, counts


CASES = [
    {"spec": "polyak-adam"},
    {"spec": "polyak-adam", "weight_decay": 0.1},
    {"spec": "polyak-adam", "weight_decay": 0.1, "warmup": 30},
    {"spec": "polyak-adam:cap=yes", "weight_decay": 0.1},
    {"spec": "polyak-adam:decay=none", "weight_decay": 0.1},
    {"spec": "polyak-adam:dog=0", "weight_decay": 0.1},
    {"spec": "polyak-adam:factor=0.01", "weight_decay": 0.1},
    {"spec": "polyak-adam:factor=0.01,dog=0.3,average=0.995", "weight_decay": 0.1},
    {"spec": "polyak-adam:lower_bound=3,factor=1,average=0.9,beta1=0.5,beta2=0.999,eps=0.01,cap=yes,decay=none", "weight_decay": 0.02},
]


def distance(one, other):
    """The largest difference of two paths relative to the largest coordinate of a point."""
    pairs = zip(one, other, strict=True)
    return max(max(abs(a - b) for a, b in zip(x, y)) / max(map(abs, x)) for (x, _, _), (y, _, _) in pairs)


def described(case):
    path, counts = run(case, START)
    moved, _ = run(case, [x * (1 + 1e-12) for x in START])
    losses = " ".join(f"{path[t][2]:8.4f}" for t in (0, STEPS // 2, STEPS - 1))
    print(f"{losses}  grown {distance(path, moved) / 1e-12:8.1e}  {counts}  {case['spec']}")
    rows = path[EVERY - 1 :: EVERY]
    one = {"spec": case["spec"]}
    around = {name: case[name] for name in ("weight_decay", "warmup") if name in case}
    if around:
        one["around"] = around
    one["official"] = "run(case, START)"
    return one | {"points": [x for x, _, _ in rows], "rates": [rate for _, rate, _ in rows]}


def compact(value, depth=0):
    """JSON with a line for each row of numbers; floats are printed so that they read back exactly."""
    if isinstance(value, dict):
        inner = ",\n".join(f"{' ' * (depth + 1)}{json.dumps(k)}: {compact(v, depth + 1)}" for k, v in value.items())
        return "{\n" + inner + "\n" + " " * depth + "}"
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        inner = ",\n".join(" " * (depth + 1) + compact(v, depth + 1) for v in value)
        return "[\n" + inner + "\n" + " " * depth + "]"
    return json.dumps(value, separators=(",", ":"))


def main():
    golden = {
        "package": "polyak_adam.py, beside this file",
        "steps": STEPS,
        "start": START,
        "decayed": 0,
        "tensors": [{"length": length, "matrix": matrix, "decays": decay} for length, matrix, decay in TENSORS],
        "cases": [described(case) for case in CASES],
    }
    pathlib.Path(__file__).with_name("polyak-adam.json").write_text(compact(golden) + "\n")


if __name__ == "__main__":
    main()
