"""Several ranks: what must be the same on all of them, and what is summed over them."""

from __future__ import annotations

import hashlib
import weakref
from typing import Any, Iterator

import torch

distributed = torch.distributed


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor, of which each rank has a part."""
    return hasattr(tensor, "device_mesh")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this rank has."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def like(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The part of a gradient that belongs to this rank's part of the parameter."""
    if not is_sharded(parameter):
        return local(gradient)
    if not is_sharded(gradient):
        raise RuntimeError("it is no DTensor, and the parameter is one")
    if gradient.placements != parameter.placements:  # type: ignore[attr-defined]
        gradient = gradient.redistribute(parameter.device_mesh, parameter.placements)  # type: ignore[attr-defined]
    return local(gradient)


class HeldGradients:
    """The gradients that FSDP2 holds back in tensors of its own, while `set_requires_gradient_sync(False)` is in force.

    They are private to torch. Where they are not found, `complete` is False.
    """

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        sharded = {id(p) for p in parameters if is_sharded(p)}
        self._groups: list[tuple[Any, list[Any]]] = []
        found = 0
        for group in _fsdp_groups() if sharded else ():
            params = [p for p in group.fsdp_params if id(p.sharded_param) in sharded]
            if params:
                self._groups.append((group, params))
                found += len(params)
        self.complete = found == len(sharded)

    def tensors(self) -> list[torch.Tensor]:
        """All of them that there are now."""
        held: list[Any] = []
        for group, params in self._groups:
            held.append(getattr(group, "_partial_reduce_output", None))
            for param in params:
                held.append(getattr(getattr(param, "_unsharded_param", None), "grad", None))
                held.append(getattr(param, "unsharded_accumulated_grad", None))
        return [tensor for tensor in held if tensor is not None]


def _fsdp_groups() -> Iterator[Any]:
    """FSDP2's groups of parameters, of all models."""
    try:
        from torch.distributed._composable_state import _module_state_mapping as states
    except ImportError:
        return
    for known in list(states.values()):
        state: Any = known() if isinstance(known, weakref.ref) else known
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        yield from (group for group in groups if hasattr(group, "fsdp_params"))


class Ranks:
    """The ranks that train one model together. A process group of False means that this one trains alone."""

    def __init__(self, process_group: Any) -> None:
        self.process_group = process_group
        #: where the parameters are
        self.device = torch.device("cpu")

    def count(self) -> int:
        if self.process_group is False or not distributed.is_available() or not distributed.is_initialized():
            return 1
        return distributed.get_world_size(self.process_group)

    def rows(self, values: list[float]) -> list[list[float]]:
        """The values of every rank, in the order of ranks: added in this order, they have the same bits everywhere."""
        if self.count() < 2:
            return [values]
        return [row.tolist() for row in self._gathered(torch.tensor(values, dtype=torch.float64))]

    def _gathered(self, mine: torch.Tensor) -> list[torch.Tensor]:
        """A tensor of every rank, in the order of ranks. NCCL takes them from the GPU, gloo from the CPU."""
        backend = str(distributed.get_backend(self.process_group))
        there = self.device if "nccl" in backend else torch.device("cpu")
        sent = mine.to(there)
        found = [torch.empty_like(sent) for _ in range(self.count())]
        distributed.all_gather(found, sent, group=self.process_group)
        return [row.to(mine.device) for row in found]

    def mean(self, value: float) -> float:
        return self.loss_and_sums([value])[0]

    def loss_and_sums(self, values: list[float]) -> list[float]:
        """The mean of the first value, which is a loss, and the sums of the others."""
        sums = [sum(column) for column in zip(*self.rows(values))]
        return [sums[0] / self.count(), *sums[1:]]

    def gather_on_device(self, values: torch.Tensor) -> None:
        """The same for a tensor, in its place. With NCCL this does not wait for the GPU."""
        rows = self._gathered(values)
        total = rows[0].clone()
        for row in rows[1:]:
            total += row
        total[0] /= self.count()
        values.copy_(total)

    def mean_on_device(self, value: torch.Tensor | float) -> torch.Tensor:
        values = torch.zeros(1, dtype=torch.float64, device=self.device) + value
        self.gather_on_device(values)
        return values[0]

    def share(self, parameter: torch.Tensor) -> float:
        """This rank's share of the sums over all ranks: less than 1 where several ranks have the same numbers."""
        parts = 1
        if is_sharded(parameter):
            for ranks, placement in zip(parameter.device_mesh.shape, parameter.placements):  # type: ignore[attr-defined]
                if placement.is_partial():
                    raise RuntimeError("it is a DTensor of partial sums, which no optimizer can change: redistribute it first")
                parts *= ranks if placement.is_shard() else 1
        count = self.count()
        if count % parts:
            raise RuntimeError(
                f"its parts are on {parts} ranks, and process_group has {count}: leave process_group out, or give a group with all of them"
            )
        return parts / count

    def check_alike(self, values: list[Any], problems: list[str]) -> None:
        """Refuses values that differ between ranks. `problems` has a message for each value."""
        rows = self.rows([_number(value) for value in values])
        for rank, row in enumerate(rows):
            for problem, here, first in zip(problems, row, rows[0]):
                if here != first:
                    raise RuntimeError(f"rank {rank} {problem}. Where ranks train models of their own: process_group=False")


def _number(value: Any) -> float:
    """A hash of a value, as a number that an f64 holds exactly."""
    return float(int.from_bytes(hashlib.sha256(repr(value).encode()).digest()[:6], "big"))
