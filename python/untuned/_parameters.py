"""Parameters as the caller gives them: groups, names, and checks."""

from __future__ import annotations

import math
import weakref
from typing import Any, Iterable

import torch

from . import _untuned
from ._ranks import local

_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

_DEVICES = ("cpu", "cuda")


class Slot:
    """A place in the groups of an optimizer, and what is known of the parameter there. Another tensor may be put there."""

    def __init__(self, tensor: torch.Tensor, name: str | None, no_decay: bool, shape: tuple[int, ...] | None = None) -> None:
        self.name = name
        #: the shape of the whole parameter
        self.shape = tuple(tensor.shape) if shape is None else shape
        self.no_decay = no_decay
        self.put(tensor)

    def put(self, tensor: torch.Tensor) -> None:
        # It must not keep the memory of a tensor that was replaced.
        self.tensor = weakref.ref(tensor)


def number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={value!r} must be a number") from None
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name}={value} must be finite, and 0 or more")
    return number


def some_names(names: Iterable[str | None]) -> str:
    known = [name for name in names if name]
    rest = ", …" if len(known) > 5 else ""
    return f"; there are {', '.join(known[:5])}{rest}" if known else ""


def groups_of(params: Any) -> list[dict[str, Any]]:
    if isinstance(params, torch.Tensor):
        raise TypeError("params must be a module or a list of parameters: type [parameter]")
    if isinstance(params, torch.nn.Module):
        params = list(params.named_parameters())
    elif isinstance(params, dict):
        raise TypeError("params must be a module or a list: type [group], or model.named_parameters()")
    params = list(params)
    if not params:
        raise ValueError("there are no parameters: is the model empty, or a generator used twice?")
    return params if isinstance(params[0], dict) else [{"params": params}]


def named_parameters(params: Any) -> list[tuple[str | None, torch.Tensor]]:
    if isinstance(params, torch.nn.Module):
        return list(params.named_parameters())
    if isinstance(params, torch.Tensor):
        return [(None, params)]
    if isinstance(params, (set, frozenset)):
        raise TypeError("parameters must stand in a list: the order of a set changes from run to run")
    return [item if isinstance(item, tuple) else (None, item) for item in params]


def check(parameter: Any, name: str, devices: set[torch.device]) -> None:
    if not isinstance(parameter, torch.Tensor):
        raise TypeError(f"{name} is no tensor but {type(parameter).__name__}")
    if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
        raise ValueError(f"{name} has no shape yet: run the model once before you make the optimizer")
    name = f"{name} (shape {tuple(parameter.shape)})"
    if getattr(parameter, "_is_flat_param", False) or getattr(parameter, "_fsdp_flattened", False):
        raise NotImplementedError(
            f"{name} belongs to FSDP1, which makes tensors flat, so that their shapes are lost: use FSDP2 (torch.distributed.fsdp.fully_shard)"
        )
    if len(devices) > 1:
        raise ValueError(f"{name}: the parameters are on {sorted(map(str, devices))}: put them on one device")
    if parameter.device.type not in _DEVICES:
        raise NotImplementedError(f"{name} is on {parameter.device}; only CPUs and NVIDIA GPUs are supported")
    if parameter.layout != torch.strided:
        raise TypeError(f"{name} is sparse; make it dense with .to_dense()")
    if parameter.dtype not in _FLOATS:
        raise TypeError(f"{name} holds {parameter.dtype}; only {', '.join(map(str, _FLOATS))} can be trained")
    with torch.no_grad():
        here = local(parameter)
    if not _untuned.is_dense(here):
        raise ValueError(f"{name} does not fill a block of memory; train parameter.contiguous() instead")
