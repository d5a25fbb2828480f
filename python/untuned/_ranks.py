"""Several ranks: what they must agree on, and what they add up."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

distributed = torch.distributed


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor, of which each rank has a part."""
    return hasattr(tensor, "device_mesh")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this rank has."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[operator]


def like(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The part of a gradient that belongs to this rank's part of the parameter."""
    if not is_sharded(parameter):
        return local(gradient)
    if not is_sharded(gradient):
        raise RuntimeError("the gradient of a DTensor is no DTensor")
    if gradient.placements != parameter.placements:  # type: ignore[attr-defined]
        gradient = gradient.redistribute(parameter.device_mesh, parameter.placements)  # type: ignore[attr-defined]
    return local(gradient)


class Ranks:
    """The ranks that train one model together. A process group of False means that this one trains alone."""

    def __init__(self, process_group: Any) -> None:
        self.process_group = process_group

    def count(self) -> int:
        if self.process_group is False or not distributed.is_available() or not distributed.is_initialized():
            return 1
        return distributed.get_world_size(self.process_group)

    def rows(self, values: list[float]) -> list[list[float]]:
        """The values of every rank, in the order of ranks: added in this order, they have the same bits everywhere."""
        if self.count() < 2:
            return [values]
        mine = torch.tensor(values, dtype=torch.float64)
        found = [torch.empty_like(mine) for _ in range(self.count())]
        distributed.all_gather(found, mine, group=self.process_group)
        return [row.tolist() for row in found]

    def mean(self, value: float) -> float:
        return self.loss_and_sums([value])[0]

    def loss_and_sums(self, values: list[float]) -> list[float]:
        """The mean of the first value, which is a loss, and the sums of the others."""
        sums = [sum(column) for column in zip(*self.rows(values))]
        return [sums[0] / self.count(), *sums[1:]]

    def share(self, parameter: torch.Tensor) -> float:
        """What part of the sums over all ranks those of this rank are: less than 1 where several ranks have the same numbers."""
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
        """Refuses values that are not the same on all ranks. There is a problem to tell of each."""
        rows = self.rows([_number(value) for value in values])
        for rank, row in enumerate(rows):
            for problem, here, first in zip(problems, row, rows[0]):
                if here != first:
                    raise RuntimeError(f"rank {rank} {problem}. Where ranks train models of their own: process_group=False")


def _number(value: Any) -> float:
    """A number for a value, which an f64 holds exactly."""
    return float(int.from_bytes(hashlib.sha256(repr(value).encode()).digest()[:6], "big"))
