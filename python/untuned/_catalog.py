"""The methods of the library, and what their classes are called."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from . import _untuned

#: The class of each method.
CLASSES = {
    "gd": "GD",
    "clipped-gd": "ClippedGD",
    "polyak": "Polyak",
    "polyak-bound": "PolyakBound",
    "inexact-polyak": "InexactPolyak",
    "decsps": "DecSPS",
    "adasps": "AdaSPS",
    "dog": "DoG",
    "anytime-polyak": "AnytimePolyak",
    "adaptive-polyak": "AdaptivePolyak",
    "level-polyak": "LevelPolyak",
    "sps-max": "SPSMax",
    "ali-g": "AliG",
    "dowg": "DoWG",
    "sgd-momentum": "SGDMomentum",
    "adagrad": "Adagrad",
    "adamw": "AdamW",
    "momo": "Momo",
    "momo-adam": "MomoAdam",
    "cocob": "COCOB",
    "d-adapt-sgd": "DAdaptSGD",
    "d-adapt-adam": "DAdaptAdam",
    "prodigy": "Prodigy",
    "schedule-free-sgd": "ScheduleFreeSGD",
    "schedule-free-adamw": "ScheduleFreeAdamW",
    "mechanic": "Mechanic",
    "polyak-adam": "PolyakAdam",
}


class Parameter(NamedTuple):
    """A parameter of a method."""

    name: str
    #: "number", "whole", "bool" or "word"
    kind: str
    #: the words that it may be
    words: tuple[str, ...]
    #: None where it must be given, or is derived from something else
    default: Any
    required: bool
    #: what it is derived from
    derived: str | None
    meaning: str


class Method(NamedTuple):
    """A method of the library."""

    #: the name in a spec string
    name: str
    #: the class in this package
    class_name: str
    formula: str
    reference: str
    #: the weight decay of matrices by default
    weight_decay: float
    parameters: tuple[Parameter, ...]


@functools.cache
def table() -> dict[str, Method]:
    """All methods by name."""
    methods = {}
    for row in _untuned.catalog():
        parameters = tuple(
            Parameter(**{**p, "words": tuple(p["words"] or ())}) for p in row["parameters"]
        )
        methods[row["name"]] = Method(
            row["name"], CLASSES[row["name"]], row["formula"], row["reference"], row["weight_decay"], parameters
        )
    return methods


def methods() -> list[Method]:
    """Returns all methods: their names, classes, formulas, parameters and references.

    >>> import untuned
    >>> [method.class_name for method in untuned.methods()][-1]
    'PolyakAdam'
    """
    return list(table().values())


def spec_of(name: str, values: dict[str, Any]) -> str:
    """Writes a spec string. Values that are None are left out."""

    def text(parameter: Parameter, value: Any) -> str:
        if parameter.kind == "bool":
            return value if isinstance(value, str) else ("yes" if value else "no")
        if parameter.kind == "word":
            return str(value)
        return repr(float(value)) if isinstance(value, float) or parameter.kind == "number" else str(value)

    parameters = {parameter.name: parameter for parameter in table()[name].parameters}
    given = {key: value for key, value in values.items() if value is not None}
    pairs = []
    for key, value in given.items():
        try:
            pairs.append(f"{key}={text(parameters[key], value)}" if key in parameters else f"{key}={value}")
        except (TypeError, ValueError):
            pairs.append(f"{key}={value}")
    return f"{name}:{','.join(pairs)}" if pairs else name
