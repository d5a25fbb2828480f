"""Reads the loss in `torch.autograd.backward`, which `Tensor.backward` calls, too.

The losses that are differentiated between two steps are added up, as their gradients are. A trainer may divide them by any number:
methods that need the loss take the same step when loss and gradient are multiplied by one factor.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import TYPE_CHECKING, Any, Callable, TypeVar

import torch
from torch.autograd.graph import GradientEdge

from ._ranks import local

if TYPE_CHECKING:
    from ._torch import Optimizer

#: Sets what torch.compile does with the functions that this thread calls, and returns what it did before. None: nothing.
set_eval_frame: Callable[[Any], Any] = torch._C._dynamo.eval_frame.set_eval_frame

F = TypeVar("F", bound=Callable[..., Any])

#: The optimizers that read the loss.
listeners: weakref.WeakSet[Optimizer] = weakref.WeakSet()

#: A scaled loss remembers its scale under this name.
_SCALE = "_untuned_scale"


def not_compiled(function: F) -> F:
    """Lets torch.compile leave a function as it is, but not what it calls: see `set_eval_frame`."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


class SeenLoss:
    """The losses of an optimizer since its last step, and the gradients that they left."""

    def __init__(self) -> None:
        #: their sum, in f64, with the scale of a GradScaler taken out
        self.sum: torch.Tensor | None = None
        #: why the sum cannot be used
        self.problem: str | None = None
        #: whether all of them, or none, were scaled by a GradScaler
        self.scaled: set[bool] = set()
        #: whether some losses may be missing in the sum
        self.may_lack_some = False
        #: the gradients as the last backward pass left them
        self.marks: Any = None

    def __bool__(self) -> bool:
        return self.sum is not None or self.problem is not None


def with_held(optimizer: Optimizer, marks: bytes) -> Any:
    """The marks of all gradients, those of the parameters being given. They differ once somebody has replaced or changed a gradient."""
    return marks, [(id(g), g._version) for g in optimizer._held.tensors()]


def marks(optimizer: Optimizer) -> Any:
    found = None
    # The step says what is wrong with parameters.
    with contextlib.suppress(Exception):
        found = optimizer._look()
    return with_held(optimizer, b"" if found is None else found[3])


def _before(optimizer: Optimizer) -> Any:
    """Forgets the loss of gradients that the optimizer did not drop itself, as after `Module.zero_grad`."""
    now, seen = marks(optimizer), optimizer._seen
    if seen and now != seen.marks:
        gradients = [p.grad for p in optimizer._trained() if p.grad is not None] + optimizer._held.tensors()
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


def _after(optimizer: Optimizer, before: Any, values: list[Any]) -> None:
    now, seen = marks(optimizer), optimizer._seen
    if now == before:
        # This backward pass was of other parameters, or FSDP2 holds back its gradient where nobody can see it.
        seen.may_lack_some |= not optimizer._held.complete
        return
    seen.marks = now
    for value, scaled in values:
        seen.scaled.add(scaled)
        if isinstance(value, str):
            seen.problem = value
        else:
            seen.sum = value if seen.sum is None else seen.sum.to(value.device) + value


def _listen_to_backward() -> None:
    original = torch.autograd.backward

    @not_compiled
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
        compiler = set_eval_frame(None)
        try:
            watching = [(optimizer, _before(optimizer)) for optimizer in list(listeners)]
            values = _losses(roots, given)
        finally:
            set_eval_frame(compiler)
        original(tensors, grad_tensors, *args, **kwargs)
        compiler = set_eval_frame(None)
        try:
            for optimizer, before in watching:
                _after(optimizer, before, values)
        finally:
            set_eval_frame(compiler)

    torch.autograd.backward = backward


def _listen_to_scaler(scaler: Any) -> None:
    """Wraps the methods that a class of GradScalers defines itself."""

    def remember(outputs: Any, factor: torch.Tensor) -> None:
        if isinstance(outputs, torch.Tensor):
            setattr(outputs, _SCALE, factor.detach().to(outputs.device, torch.float64, copy=True))
        elif isinstance(outputs, (list, tuple)):
            for output in outputs:
                remember(output, factor)

    def wrap_scale(scale: Any) -> Any:
        @functools.wraps(scale)
        def scale_and_remember(self: Any, outputs: Any) -> Any:
            scaled = scale(self, outputs)
            if self.is_enabled() and listeners and self._scale is not None:
                remember(scaled, self._scale)
            return scaled

        return scale_and_remember

    def wrap_unscale(unscale: Any) -> Any:
        @functools.wraps(unscale)
        def unscale_and_mark(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            listens = optimizer in listeners
            if listens:
                optimizer._notice_changes(optimizer._look()[3])
            found = unscale(self, optimizer, *args, **kwargs)
            if listens:
                # This change is the scaler's.
                optimizer._seen.marks = marks(optimizer)
            return found

        return unscale_and_mark

    if "_untuned" not in vars(scaler):
        scaler._untuned = True
        if "scale" in vars(scaler):
            scaler.scale = wrap_scale(scaler.scale)
        if "_unscale_grads_" in vars(scaler):
            scaler._unscale_grads_ = wrap_unscale(scaler._unscale_grads_)


def _listen_to_scalers() -> None:
    """Listens to torch's GradScaler, and to classes of it such as ShardedGradScaler, once one of them is made."""
    base = torch.amp.GradScaler
    original = base.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        for each in type(self).__mro__:
            if issubclass(each, base):
                _listen_to_scaler(each)
        original(self, *args, **kwargs)

    def classes(of: Any) -> Any:
        yield of
        for each in of.__subclasses__():
            yield from classes(each)

    for each in classes(base):
        _listen_to_scaler(each)
    base.__init__ = init  # type: ignore[method-assign]


if not hasattr(torch.autograd.backward, "_untuned"):
    _listen_to_backward()
    _listen_to_scalers()
    torch.autograd.backward._untuned = True  # type: ignore[attr-defined]
