"""A class for each method of the catalog, and helpers that make optimizers."""

from __future__ import annotations

import inspect
from typing import Any

from . import _untuned
from ._catalog import CLASSES, Method, spec_of, table
from ._torch import Optimizer


def _signature(method: Method) -> list[inspect.Parameter]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        inspect.Parameter("params", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Any"),
        inspect.Parameter(
            "total_steps", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation="int | None"
        ),
    ]
    types = {"number": "float", "whole": "int", "bool": "bool"}
    for parameter in method.parameters:
        annotation = types.get(parameter.kind) or f"Literal[{', '.join(map(repr, parameter.words))}]"
        optional = parameter.default is None and not parameter.required
        parameters.append(
            inspect.Parameter(
                parameter.name,
                keyword,
                default=inspect.Parameter.empty if parameter.required else parameter.default,
                annotation=f"{annotation} | None" if optional else annotation,
            )
        )
    taken = {parameter.name for parameter in parameters}
    shared = list(inspect.signature(Optimizer.__init__).parameters.values())[4:]
    return parameters + [parameter for parameter in shared if parameter.name not in taken]


def _doc(method: Method) -> str:
    lines = [f"`{method.name}`: {method.formula}.", "", f"Reference: {method.reference}.", "", "Args:"]
    lines += [
        "    params: a module, parameters, named parameters, or groups of parameters.",
        "    total_steps: the number of steps of the whole run, where the method needs it.",
    ]
    for parameter in method.parameters:
        default = "required" if parameter.required else parameter.default
        default = f"from {parameter.derived}" if parameter.derived else default
        lines.append(f"    {parameter.name}: {parameter.meaning} ({default}).")
    lines.append("")
    lines.append("The other arguments are those of :class:`untuned.Optimizer`.")
    required = "".join(f", {p.name}=0.1" for p in method.parameters if p.required)
    required += ", f_star=0.0" if method.name == "polyak" else ""
    lines += [
        "",
        ">>> import torch, untuned",
        ">>> model = torch.nn.Linear(2, 1)",
        f">>> optimizer = untuned.{method.class_name}(model, total_steps=100{required})",
        ">>> loss = model(torch.ones(4, 2)).square().mean()",
        ">>> loss.backward()",
        ">>> optimizer.step()",
    ]
    return "\n".join(lines)


def _make_class(method: Method) -> type[Optimizer]:
    own = {parameter.name for parameter in method.parameters}
    parameters = _signature(method)
    signature = inspect.Signature(parameters)

    def __init__(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"untuned.{method.class_name}: {error}") from None
        bound.pop("self")
        params, steps = bound.pop("params"), bound.pop("total_steps", None)
        values = {name: bound.pop(name) for name in list(bound) if name in own}
        Optimizer.__init__(self, params, spec_of(method.name, values), steps, **bound)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{method.class_name}.__init__"
    body = {"__init__": __init__, "__doc__": _doc(method), "__module__": "untuned"}
    return type(method.class_name, (Optimizer,), body)


for _method in table().values():
    globals()[_method.class_name] = _make_class(_method)


def optimizer(spec: str, params: Any, total_steps: int | None = None, **kwargs: Any) -> Optimizer:
    """Makes an optimizer from the spec string of its method.

    >>> import torch, untuned
    >>> model = torch.nn.Linear(2, 1)
    >>> untuned.optimizer("prodigy:d0=1e-5", model).method
    'prodigy:d0=1e-5'
    """
    name, given, _ = _untuned.parse(spec)
    twice = set(given) & set(kwargs)
    if twice:
        raise ValueError(f"`{spec}` and the arguments both give {sorted(twice)}")
    made: Optimizer = globals()[CLASSES[name]](params, total_steps, **given, **kwargs)
    return made


def hugging_face_arguments(method: str | type[Optimizer] = "polyak-adam") -> dict[str, Any]:
    """The arguments of Hugging Face's `TrainingArguments` that must be neutral: no clipping, a constant schedule, the method's own decay.

    Hugging Face gives each group its own `weight_decay`, which is 0 by default.

    Args:
        method: a spec string or a class, such as "adamw" or `untuned.AdamW`.

    >>> import untuned
    >>> untuned.hugging_face_arguments(untuned.PolyakAdam)
    {'max_grad_norm': 0.0, 'lr_scheduler_type': 'constant', 'warmup_steps': 0, 'weight_decay': 0.1}
    """
    classes = {row.class_name: row for row in table().values()}
    row = table()[_untuned.parse(method)[0]] if isinstance(method, str) else classes[method.__name__]
    return {"max_grad_norm": 0.0, "lr_scheduler_type": "constant", "warmup_steps": 0, "weight_decay": row.weight_decay}
