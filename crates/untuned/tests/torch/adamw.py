"""AdamW of PyTorch on a small problem in f64, for the test `optimizers`.

How to run it, from the root of the repository (torch is needed):

    python3 crates/untuned/tests/torch/adamw.py

It writes `adamw.json` beside it: the point after every tenth of 200 steps, once with AdamW alone, and once with its gradient
clipped and its rate warmed up.
"""

import json
import pathlib

import torch

STEPS = 200
START = [1.0, -2.0, 0.5, 3.0, -1.5, 0.25]
# The first four coordinates decay.
DECAYED = 4


def gradient(x, t):
    """Of Σ (a/2)x² + (b/4)x⁴ with a = 0.5, 1, …, 3 and b = 0.1, 0.2, …, 0.6, and a push that changes from step to step."""
    index = torch.arange(1, 7, dtype=torch.float64)
    push = torch.tensor([(t * i) % 7 - 3 for i in range(1, 7)], dtype=torch.float64)
    return 0.5 * index * x + 0.1 * index * x * x * x + 0.25 * push


def run(lr, beta1, beta2, eps, decay, clip, warmup):
    parts = [torch.tensor(START[:DECAYED], dtype=torch.float64), torch.tensor(START[DECAYED:], dtype=torch.float64)]
    groups = [{"params": [parts[0]], "weight_decay": decay}, {"params": [parts[1]], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(beta1, beta2), eps=eps)
    points = []
    for t in range(STEPS):
        g = gradient(torch.cat(parts), t)
        parts[0].grad, parts[1].grad = g[:DECAYED].clone(), g[DECAYED:].clone()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parts, clip)
        for group in optimizer.param_groups:
            group["lr"] = lr * ((t + 1) / (warmup + 1) if t < warmup else 1.0)
        optimizer.step()
        if (t + 1) % 10 == 0:
            points.append(torch.cat(parts).tolist())
    return points


CASES = [
    {"lr": 0.02, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "decay": 0.1, "clip": None, "warmup": 0},
    {"lr": 0.05, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "decay": 0.1, "clip": 1.0, "warmup": 50},
]

if __name__ == "__main__":
    cases = [{**case, "points": run(**case)} for case in CASES]
    golden = {"torch": torch.__version__, "start": START, "decayed": DECAYED, "cases": cases}
    path = pathlib.Path(__file__).with_name("adamw.json")
    path.write_text(json.dumps(golden, indent=1) + "\n")
