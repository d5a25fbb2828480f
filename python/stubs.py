"""Writes python/untuned/__init__.pyi from the catalog. A test checks that it is current.

    python python/stubs.py
"""

from __future__ import annotations

import inspect
from pathlib import Path

import untuned
from untuned import _torch

PATH = Path(__file__).parent / "untuned" / "__init__.pyi"

HEAD = '''"""Training without tuning for PyTorch: the step size and the clipping threshold set themselves."""
# Written by python/stubs.py.

from contextlib import AbstractContextManager
from typing import Any, Callable, Iterable, Literal

import torch

from ._catalog import Method as Method
from ._catalog import Parameter as Parameter
from ._catalog import methods as methods
from ._minimize import Minimum as Minimum
from ._minimize import minimize as minimize
from ._warnings import UntunedWarning as UntunedWarning

__version__: str

def optimizer(spec: str, params: Any, total_steps: int | None = None, **kwargs: Any) -> Optimizer: ...
def hugging_face_arguments(method: str | type[Optimizer] = "polyak-adam") -> dict[str, Any]: ...
'''

MEMBERS = """    @property
    def method(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def refused_steps(self) -> int: ...
    @property
    def rate(self) -> float: ...
    @property
    def grad_norm(self) -> float: ...
    @property
    def estimate(self) -> float | None: ...
    @property
    def warning(self) -> str | None: ...
    def step(self, closure: Any = None, *, loss: Any = None) -> Any: ...
    def evaluation(self) -> AbstractContextManager[Optimizer]: ...
"""


def init(cls: type) -> str:
    lines, star = [], False
    for parameter in inspect.signature(cls.__init__).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            lines.append("*")
            star = True
        text = parameter.name
        if parameter.annotation is not inspect.Parameter.empty:
            text += f": {parameter.annotation}"
        if parameter.default is not inspect.Parameter.empty:
            default = parameter.default
            # A stub has no name for infinity.
            shown = "..." if default == float("inf") else repr(default)
            text += f" = {shown}" if parameter.annotation is not inspect.Parameter.empty else f"={shown}"
        lines.append(text)
    return "    def __init__(\n" + "".join(f"        {line},\n" for line in lines) + "    ) -> None: ...\n"


def stub() -> str:
    text = HEAD + "\nclass Optimizer(torch.optim.Optimizer):\n" + init(_torch.Optimizer) + MEMBERS
    for method in untuned.methods():
        cls = getattr(untuned, method.class_name)
        text += f"\nclass {method.class_name}(Optimizer):\n" + init(cls)
    return text


if __name__ == "__main__":
    PATH.write_text(stub())
