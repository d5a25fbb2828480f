"""Training without tuning for PyTorch: the step size and the clipping threshold set themselves.

>>> import torch, untuned
>>> model = torch.nn.Linear(2, 1)
>>> optimizer = untuned.PolyakAdam(model, total_steps=100)
>>> for _ in range(100):
...     optimizer.zero_grad()
...     loss = (model(torch.ones(4, 2)) - 3).square().mean()
...     loss.backward()
...     optimizer.step()  # untuned reads the loss in backward()
>>> loss.item() < 0.01
True
"""

from __future__ import annotations

from typing import Any

from ._catalog import CLASSES, Method, Parameter, methods
from ._minimize import Minimum, minimize
from ._untuned import __version__
from ._warnings import UntunedWarning

#: These need torch, and are imported when they are first used.
_OF_TORCH = frozenset({"Optimizer", "optimizer", "hugging_face_arguments", *CLASSES.values()})

__all__ = ["Method", "Minimum", "Parameter", "UntunedWarning", "__version__", "methods", "minimize", *sorted(_OF_TORCH)]


def __getattr__(name: str) -> Any:
    if name not in _OF_TORCH:
        raise AttributeError(f"module 'untuned' has no attribute {name!r}")
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise ImportError(f"untuned.{name} needs PyTorch; type: pip install torch") from error
    from . import _classes

    value = getattr(_classes, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_OF_TORCH})
