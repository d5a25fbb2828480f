"""Sees the loss where it passes: in `torch.autograd.backward`, which `Tensor.backward` calls, too.

The step of a method that needs the loss stays the same when the loss and the gradient are multiplied by one number. So the sum of the
scalars that were differentiated since the last step belongs to the accumulated gradient, whatever a trainer divides them by.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any, Iterable

import torch
from torch.autograd.graph import GradientEdge

from ._ranks import local

if TYPE_CHECKING:
    from ._torch import Optimizer

#: The optimizers that listen.
listeners: weakref.WeakSet[Optimizer] = weakref.WeakSet()

#: A scaled loss remembers its scale under this name.
_SCALE = "_untuned_scale"


class SeenLoss:
    """The losses of an optimizer since its last step, and the gradients that they left."""

    def __init__(self) -> None:
        #: their sum, in f64, with the scale of a GradScaler taken out
        self.sum: torch.Tensor | None = None
        #: why the sum cannot be used
        self.problem: str | None = None
        #: whether all of them, or none, were scaled by a GradScaler
        self.scaled: set[bool] = set()
        #: the gradients as the last backward pass left them
        self.marks: list[Any] | None = None

    def __bool__(self) -> bool:
        return self.sum is not None or self.problem is not None


def marks(parameters: Iterable[torch.Tensor]) -> list[Any]:
    """What tells whether somebody has replaced or changed a gradient."""
    return [None if (g := p.grad) is None else (id(g), g._version) for p in parameters]


def _before(optimizer: Optimizer, parameters: list[torch.Tensor]) -> list[Any]:
    """Forgets the loss of gradients that were thrown away without a word, as `Module.zero_grad` does."""
    now, seen = marks(parameters), optimizer._seen
    if seen and now != seen.marks:
        gradients = [p.grad for p in parameters if p.grad is not None]
        with torch.no_grad():
            zero = not any(bool(torch.count_nonzero(local(g))) for g in gradients)
        if zero:
            optimizer._seen = SeenLoss()
    return now


def _losses(roots: tuple[Any, ...], gradients: tuple[Any, ...]) -> list[tuple[torch.Tensor | str, bool]]:
    """The value of each root, or why it has none, and whether a GradScaler scaled it."""
    values: list[tuple[torch.Tensor | str, bool]] = []
    for root, gradient in zip(roots, gradients):
        if isinstance(root, GradientEdge):
            values.append(("backward() began at a GradientEdge", False))
            continue
        scale = getattr(root, _SCALE, None)
        if root.numel() != 1:
            values.append((f"backward() began at a tensor of shape {tuple(root.shape)}", scale is not None))
            continue
        value = root.detach().to(torch.float64, copy=True).reshape(())
        if gradient is not None:
            value *= gradient.detach().to(torch.float64).reshape(())
        if scale is not None:
            value /= scale
        values.append((value, scale is not None))
    return values


def _after(
    optimizer: Optimizer, parameters: list[torch.Tensor], before: list[Any], values: list[Any]
) -> None:
    now = marks(parameters)
    if now == before:
        return  # This backward pass was of other parameters.
    seen = optimizer._seen
    seen.marks = now
    for value, scaled in values:
        seen.scaled.add(scaled)
        if isinstance(value, str):
            seen.problem = value
        else:
            seen.sum = value if seen.sum is None else seen.sum.to(value.device) + value


def _listen_to_backward() -> None:
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
        # Inside of a backward pass, checkpointing makes others, of no loss.
        if not listeners or torch._C._current_graph_task_id() != -1:
            return original(tensors, grad_tensors, *args, **kwargs)
        if not isinstance(tensors, (torch.Tensor, GradientEdge)):
            tensors = tuple(tensors)
        roots = tensors if type(tensors) is tuple else (tensors,)
        given = kwargs.get("grad_variables") if grad_tensors is None else grad_tensors
        if given is None:
            given = (None,) * len(roots)
        elif isinstance(given, torch.Tensor):
            given = (given,)
        else:
            given = tuple(given)
            if grad_tensors is not None:
                grad_tensors = given
        watching = [(optimizer, optimizer._listening()) for optimizer in list(listeners)]
        watching = [(optimizer, parameters, _before(optimizer, parameters)) for optimizer, parameters in watching]
        values = _losses(roots, given)
        original(tensors, grad_tensors, *args, **kwargs)
        for optimizer, parameters, before in watching:
            _after(optimizer, parameters, before, values)

    # torch.compile leaves it as it is.
    backward._torchdynamo_disable = True  # type: ignore[attr-defined]
    torch.autograd.backward = backward


def _listen_to_scaler() -> None:
    scaler = torch.amp.GradScaler
    scale, unscale = scaler.scale, scaler._unscale_grads_

    def remember(outputs: Any, factor: torch.Tensor) -> None:
        if isinstance(outputs, torch.Tensor):
            setattr(outputs, _SCALE, factor.detach().to(outputs.device, torch.float64, copy=True))
        elif isinstance(outputs, (list, tuple)):
            for output in outputs:
                remember(output, factor)

    @functools.wraps(scale)
    def scale_and_remember(self: Any, outputs: Any) -> Any:
        scaled = scale(self, outputs)
        if self.is_enabled() and listeners and self._scale is not None:
            remember(scaled, self._scale)
        return scaled

    @functools.wraps(unscale)
    def unscale_and_tell(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        listens = optimizer in listeners
        if listens:
            optimizer._notice_changes()
        found = unscale(self, optimizer, *args, **kwargs)
        if listens:
            # This change is the scaler's.
            optimizer._seen.marks = marks(optimizer._listening())
        return found

    scaler.scale = scale_and_remember
    scaler._unscale_grads_ = unscale_and_tell


if not hasattr(torch.autograd.backward, "_untuned"):
    _listen_to_backward()
    _listen_to_scaler()
    torch.autograd.backward._untuned = True  # type: ignore[attr-defined]
