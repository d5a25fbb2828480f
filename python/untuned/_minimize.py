"""Minimises a function of numpy arrays."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Callable

from . import _untuned

if TYPE_CHECKING:
    import numpy as np


@dataclasses.dataclass(frozen=True)
class Minimum:
    """What :func:`minimize` found."""

    #: the last point and its loss
    x: np.ndarray
    loss: float
    #: the best point, its loss, and the step at which it was reached
    best_x: np.ndarray
    best_loss: float
    best_step: int
    #: the average of all points and its loss, where it was asked for; the method's own point to evaluate, where it has one
    average_x: np.ndarray | None
    average_loss: float | None
    #: "finished", "stationary" (the last gradient was 0), "diverged" or "refused"
    outcome: str
    #: the loss and the gradient's norm at every point, and the size of every step
    losses: np.ndarray = dataclasses.field(repr=False)
    grad_norms: np.ndarray = dataclasses.field(repr=False)
    rates: np.ndarray = dataclasses.field(repr=False)
    #: what the method warns of at the end
    warning: str | None = None


def minimize(
    f: Callable[[np.ndarray], tuple[float, np.ndarray]],
    x0: Any,
    method: str = "polyak-adam",
    *,
    steps: int,
    f_star: float | None = None,
    averaging: str | None = None,
) -> Minimum:
    """Minimises a function that returns its value and its gradient.

    An exception in the function ends the run and is raised unchanged.

    Args:
        f: takes an array like `x0`, and returns the value and the gradient there.
        x0: where to begin.
        method: a spec string, such as "inexact-polyak" or "prodigy:d0=1e-5".
        steps: the number of steps.
        f_star: the minimum, where it is known. Only "polyak" needs it.
        averaging: "uniform", "polynomial:8" or "ema:0.999": also returns this average of the points.

    >>> import untuned
    >>> found = untuned.minimize(lambda x: ((x**2).sum(), 2 * x), [3.0, -2.0], steps=200)
    >>> found.best_loss < 1e-3
    True
    """
    try:
        import numpy as np
    except ImportError as error:
        raise ImportError("untuned.minimize needs numpy; type: pip install numpy") from error

    start = np.array(x0, dtype=np.float64)
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 0:
        raise ValueError(f"steps={steps!r} must be a whole number, 0 or more")

    def array(data: bytes, shape: Any) -> np.ndarray:
        return np.frombuffer(data, dtype=np.float64).reshape(shape).copy()

    def call(data: bytes) -> tuple[float, bytes]:
        answer = f(array(data, start.shape))
        try:
            value, gradient = answer
        except (TypeError, ValueError):
            raise TypeError("f must return two things: the value and the gradient") from None
        gradient = np.asarray(gradient, dtype=np.float64)
        if gradient.shape != start.shape:
            raise ValueError(f"the gradient has the shape {gradient.shape}, and x has {start.shape}")
        return float(value), gradient.tobytes()

    found = _untuned.minimize(call, start.tobytes(), method, int(steps), f_star, averaging)
    _, loss, last = found["last"]
    best_step, best_loss, best = found["best"]
    _, average_loss, average = found.get("average", (None, None, None))
    return Minimum(
        x=array(last, start.shape),
        loss=loss,
        best_x=array(best, start.shape),
        best_loss=best_loss,
        best_step=best_step,
        average_x=None if average is None else array(average, start.shape),
        average_loss=average_loss,
        outcome=found["outcome"],
        losses=np.array(found["losses"]),
        grad_norms=np.array(found["grad_norms"]),
        rates=np.array(found["rates"]),
        warning=found["warning"],
    )
