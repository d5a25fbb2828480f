"""Our losses and gradients against PyTorch's, for GPT, the AWD-LSTM and T5, with the same dropout masks.

How to run it, from the root of the repository (torch, safetensors and numpy are needed):

    UNTUNED_TORCH=$PWD/target/agreement cargo test -p untuned-net --test torch_golden export
    python3 crates/net/tests/torch/agreement.py target/agreement

It prints the error of every gradient as a part of that gradient's norm, in f32 and f64, and fails above 1e-4 and 1e-9. With
`--golden` it also writes the small files beside it that the ordinary test `torch_golden` reads, from PyTorch's numbers in f64.

The models are written here once more, from PyTorch's own layers and its automatic differentiation, and the masks from the
addresses that `random.rs` and `device.rs` document.
"""

import json
import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open

LIMIT = {torch.float32: 1e-4, torch.float64: 1e-9}
DROPOUT = 0xD5090000


def philox(seed, site, step, blocks):
    """Philox 4x32-10 with the counter (block, step, site) and the seed as its key: four numbers of 32 bits a block."""
    low = np.uint64(0xFFFFFFFF)
    c = [blocks & low, blocks >> np.uint64(32), np.full_like(blocks, step), np.full_like(blocks, site)]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            (b >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]),
            b & low,
            (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]),
            a & low,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, axis=-1)


def bits(seed, site, step, count):
    return philox(seed, site, step, np.arange((count + 3) // 4, dtype=np.uint64)).reshape(-1)[:count]


class Noise:
    """The masks of one step."""

    def __init__(self, seed, step, dtype):
        self.seed, self.step, self.dtype = seed, step, dtype

    def mask(self, place, shape, probability):
        """0 where the number in [0, 1) is below the probability, else 1/(1 - probability)."""
        if probability == 0:
            return torch.ones(shape, dtype=self.dtype)
        probability = np.float32(probability)
        numbers = bits(self.seed, DROPOUT + place, self.step, math.prod(shape)) >> np.uint64(8)
        dropped = numbers.astype(np.float32) / np.float32(2**24) < probability
        real = np.float32 if self.dtype == torch.float32 else np.float64
        keep = real(1) / (real(1) - real(probability))
        return torch.from_numpy(np.where(dropped, real(0), keep).reshape(shape))


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def gpt(w, batch, settings, noise):
    inputs, targets = (batch[name].reshape(settings["batch"], -1) for name in ("inputs", "targets"))
    heads, p = settings["heads"], settings["dropout"]
    (n, length), width = inputs.shape, w["token"].shape[1]
    x = w["token"][inputs] + w["position"][:length]
    x = x * noise.mask(0, x.shape, p)
    norm = lambda x, weight: F.layer_norm(x, (width,), weight, None, 1e-5)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    for i in range(settings["blocks"]):
        of = lambda name: w[f"blocks.{i}.{name}"]
        qkv = F.linear(norm(x, of("attention.norm")), of("attention.qkv"))
        q, k, v = (part.reshape(n, length, heads, -1).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // heads)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        # Rows of masks begin at multiples of 4.
        padded = (length + 3) // 4 * 4
        weights = weights * noise.mask(3 * i + 1, (n, heads, length, padded), p)[..., :length]
        attended = (weights @ v).transpose(1, 2).reshape(n, length, width)
        x = x + F.linear(attended, of("attention.projection")) * noise.mask(3 * i + 2, x.shape, p)
        up = F.gelu(F.linear(norm(x, of("mlp.norm")), of("mlp.up")))
        x = x + F.linear(up, of("mlp.down")) * noise.mask(3 * i + 3, x.shape, p)
    return [cross_entropy(F.linear(norm(x, w["norm"]), w["token"]), targets)]


def lstm(w, batch, settings, noise):
    n = settings["batch"]
    inputs, targets = (batch[name].reshape(-1, n) for name in ("inputs", "targets"))
    vocabulary, width = w["embedding"].shape
    rows = noise.mask(0, (vocabulary, 1), settings["drop_rows"])
    x = (w["embedding"] * rows)[inputs] * noise.mask(1, (1, n, width), settings["drop_input"])
    carry = batch["carry"]
    for i in range(settings["layers"]):
        of = lambda name: w[f"layers.{i}.{name}"]
        hidden = of("hidden_weight")
        state, carry = carry.split([2 * n * hidden.shape[1], carry.numel() - 2 * n * hidden.shape[1]])
        h, c = state.reshape(2, 1, n, -1).unbind()
        dropped = hidden * noise.mask(2 * i + 2, hidden.shape, settings["drop_weight"])
        weights = [of("input_weight"), dropped, of("input_bias"), of("hidden_bias")]
        raw = torch.lstm(x, (h.contiguous(), c.contiguous()), weights, True, 1, 0.0, True, False, False)[0]
        last = i + 1 == settings["layers"]
        probability = settings["drop_output" if last else "drop_between"]
        x = raw * noise.mask(2 * i + 3, (1, *raw.shape[1:]), probability)
    loss = cross_entropy(F.linear(x, w["embedding"], w["decoder_bias"]), targets)
    return [
        loss,
        settings["activation"] * x.pow(2).mean(),
        settings["change"] * (raw[1:] - raw[:-1]).pow(2).mean(),
    ]


def bucket(offset, bidirectional, buckets=32, max_distance=128):
    """Which bucket `key - query` has, after the authors."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = (offset > 0).long() * buckets
        distance = offset.abs()
    else:
        distance = (-offset).clamp(min=0)
    exact = buckets // 2
    grown = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    grown = (exact + (grown * (buckets - exact)).long()).clamp(max=buckets - 1)
    return first + torch.where(distance < exact, distance, grown)


def t5(w, batch, settings, noise):
    inputs, targets = (batch[name].reshape(settings["batch"], -1) for name in ("inputs", "targets"))
    heads = settings["heads"]
    norm = lambda x, weight: F.rms_norm(x, (x.shape[-1],), weight, 1e-6)
    split = lambda x: x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)

    def attention(of, x, memory, bias):
        q, k, v = (split(F.linear(source, of(name))) for source, name in ((x, "q"), (memory, "k"), (memory, "v")))
        weights = (q @ k.transpose(-1, -2) + bias).softmax(-1)
        return F.linear((weights @ v).transpose(1, 2).flatten(2), of("o"))

    def stack(name, ids, memory):
        positions = torch.arange(ids.shape[1])
        offsets = positions[None, :] - positions[:, None]
        bias = w[f"{name}.relative_bias"][bucket(offsets, memory is None)].permute(2, 0, 1)
        if memory is not None:
            bias = bias.masked_fill(offsets > 0, float("-inf"))
        x = w["embedding"][ids]
        for i in range(settings["layers"]):
            part = lambda sublayer: lambda weight: w[f"{name}.{i}.{sublayer}.{weight}"]
            of = part("attention")
            normed = norm(x, of("norm"))
            x = x + attention(of, normed, normed, bias)
            if memory is not None:
                of = part("cross")
                x = x + attention(of, norm(x, of("norm")), memory, torch.zeros((), dtype=x.dtype))
            of = part("feed_forward")
            normed = norm(x, of("norm"))
            gate = F.gelu(F.linear(normed, of("wi_0")), approximate="tanh")
            x = x + F.linear(gate * F.linear(normed, of("wi_1")), of("wo"))
        return norm(x, w[f"{name}.norm"])

    shifted = F.pad(targets[:, :-1], (1, 0), value=0)
    return [cross_entropy(F.linear(stack("decoder", shifted, stack("encoder", inputs, None)), w["head"]), targets)]


NETWORKS = {"gpt": gpt, "lstm": lstm, "t5": t5}


def compute(tensors, settings, dtype):
    """PyTorch's parts of the loss, and its gradients."""
    weights = {
        name.removeprefix("weight."): value.to(dtype, copy=True).requires_grad_()
        for name, value in tensors.items()
        if name.startswith("weight.")
    }
    batch = {name: tensors[name].long() for name in ("inputs", "targets")} | {"carry": tensors["carry"].to(dtype)}
    noise = Noise(settings["seed"], settings["step"], dtype)
    losses = NETWORKS[settings["network"]](weights, batch, settings, noise)
    sum(losses).backward()
    losses = [loss.item() for loss in losses] + [0.0] * (3 - len(losses))
    return losses, {name: weight.grad for name, weight in weights.items()}


def compare(name, tensors, settings, dtype):
    """Prints the errors, and says whether they are small; gives PyTorch's results."""
    losses, gradients = compute(tensors, settings, dtype)
    suffix = "_64" if dtype == torch.float64 else ""
    ours = tensors["loss" + suffix].tolist()
    loss_errors = [abs(a - b) / max(abs(b), 1e-30) for a, b in zip(ours, losses)]
    errors = {}
    for tensor, gradient in gradients.items():
        difference = (tensors[f"gradient{suffix}.{tensor}"].double() - gradient.double()).norm()
        errors[tensor] = (difference / gradient.double().norm()).item()
    print(f"{name} in {str(dtype).removeprefix('torch.')}: losses {losses}, differing by {max(loss_errors):.1e}")
    for tensor, error in errors.items():
        print(f"    {error:.1e}  {tensor}")
    worst = max(errors, key=errors.get)
    print(f"    worst {errors[worst]:.1e}, {worst}")
    # Not the largest one, because Python's `max` passes over a NaN.
    return losses, gradients, all(error <= LIMIT[dtype] for error in [*loss_errors, *errors.values()])


def golden(losses, gradients):
    """What the test without PyTorch compares: norms, entries, and products with vectors of random signs."""

    def projected(gradient):
        numbers = gradient.reshape(-1).numpy()
        n = len(numbers)
        signs = [np.where(bits(index, 2, 0, n) >> np.uint64(31) == 0, 1.0, -1.0) for index in range(4)]
        return {
            "norm": float(np.linalg.norm(numbers)),
            "entries": [float(numbers[i]) for i in (0, n // 2, n - 1)],
            "signed": [float(numbers @ sign) for sign in signs],
        }

    return {"loss": losses, "gradients": {name: projected(gradient) for name, gradient in gradients.items()}}


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--golden"]
    torch.backends.mkldnn.enabled = False
    agreed = True
    for path in sorted(pathlib.Path(arguments[0]).glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            settings = json.loads(file.metadata()["settings"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        for dtype in (torch.float32, torch.float64):
            losses, gradients, agrees = compare(path.stem, tensors, settings, dtype)
            agreed &= agrees
        if settings["golden"] and "--golden" in sys.argv:
            text = json.dumps(golden(losses, gradients), indent=1)
            pathlib.Path(__file__).with_name(f"{path.stem}.json").write_text(text + "\n")
    print("all agree" if agreed else "SOME DIFFER")
    sys.exit(not agreed)


main()
