"""The methods as optimizers of PyTorch."""

from __future__ import annotations

import contextlib
import fnmatch
import inspect
import json
import math
import warnings
from itertools import chain
from typing import Any, Callable, Iterable, Iterator, NamedTuple

import torch

from . import _loss, _untuned
from ._catalog import CLASSES, Method, spec_of, table
from ._ranks import Ranks, is_sharded, like, local

#: The numbers of a session are saved as text in a tensor whose length is a multiple of this: torch.distributed.checkpoint loads into
#: tensors that are there, so that their length must not change.
_BLOCK = 4096
_KEY = "untuned"

_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

#: The methods whose parameters move from where they are, each by its rate times something. Only for these can groups have rates of
#: their own: the others compute the parameters anew from state, or estimate one distance for all.
_OWN_RATES = {
    "gd", "clipped-gd", "polyak", "polyak-bound", "inexact-polyak", "decsps", "adasps", "dog", "anytime-polyak", "level-polyak", "sps-max",
    "ali-g", "dowg", "sgd-momentum", "adagrad", "adamw", "momo", "momo-adam", "polyak-adam",
}  # fmt: skip


class _TensorOptions(NamedTuple):
    """What a session is told of a tensor."""

    #: what multiplies the run's weight decay
    decay: float
    scale: float
    #: what part of the run's rate its steps have
    rate: float
    #: what part of the sums over all ranks its sums are
    share: float
    #: how many numbers it has on all ranks together
    numbers: int


class Optimizer(torch.optim.Optimizer):
    """Any method of the library as an optimizer of PyTorch.

    Each method is also a class of its own, with its parameters as arguments: :class:`untuned.PolyakAdam`, :class:`untuned.Prodigy`.

    The loss is seen when you call `loss.backward()`. Where that is not possible, give it: `optimizer.step(loss)`.

    Args:
        params: a module, parameters, named parameters, or groups of parameters. Names make messages clear.
        method: a spec string, such as "polyak-adam" or "prodigy:d0=1e-5".
        total_steps: the number of steps of the whole run. Only some methods need it.
        lr: multiplies the rate that the method finds; 1 by default. Schedulers change it. For methods with an `lr` of their own, such
            as `adamw`, it is that one.
        weight_decay: by default what belongs to the method. It applies to matrices (2 or more dimensions); with scalar rules it
            applies to everything. A group's own `weight_decay` applies to all parameters of the group.
        no_decay: names or patterns of parameters that do not decay, such as ["embedding", "*.norm.*"], or a function of the name and
            the parameter.
        averaging: "uniform", "polynomial:8" or "exponential:0.999": keeps this average of the parameters for :meth:`evaluation`.
        max_refusals: a step with a loss or gradient that is NaN or infinite is not made. After so many in a row there is an error.
        warn_clipping: warns when gradients change between the backward pass and the step, as clipping does, where that makes the
            method's steps wrong.
        process_group: with `torch.distributed`, the ranks of this group (None: all) train one model: the loss is averaged over them, and
            the sums of shards are added. False: this rank trains alone.

    >>> import torch, untuned
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = untuned.Optimizer(model, "prodigy:d0=1e-5")
    >>> loss = model(torch.ones(4, 2)).square().mean()
    >>> loss.backward()
    >>> optimizer.step()
    """

    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Any,
        method: str = "polyak-adam",
        total_steps: int | None = None,
        *,
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None:
        name, given, method = _untuned.parse(method)
        own = _own_lr(table()[name])
        if lr is not None:
            lr = _number("lr", lr)
            if own and "lr" not in given:
                _, given, method = _untuned.parse(spec_of(name, {**given, "lr": lr}))
            elif own and given["lr"] != lr:
                raise ValueError(f"lr={lr} and `{method}` differ: give lr once")
            elif not own and 0 < lr < 0.01:
                warnings.warn(
                    f"lr={lr} multiplies the rate that {CLASSES[name]} finds, so that its steps are {1 / lr:.0f} times shorter: "
                    "leave lr out, or set it to 1",
                    stacklevel=3,
                )
        self._make_session(method, total_steps, averaging)
        if own:
            lr = given.get("lr", own)
        self._own_lr = lr if own else None
        session = self._session
        if weight_decay is None:
            weight_decay = session.default_weight_decay
        self._no_decay_rule = (no_decay,) if isinstance(no_decay, str) else no_decay
        if not callable(self._no_decay_rule):
            self._no_decay_rule = tuple(self._no_decay_rule)
        self._matched: set[str] = set()
        if max_refusals < 1:
            raise ValueError(f"max_refusals={max_refusals} must be 1 or more")
        self._options = {"max_refusals": max_refusals, "warn_clipping": warn_clipping}
        self._ranks = Ranks(process_group)
        self._names: dict[torch.Tensor, str | None] = {}
        self._kept_from_decay: set[torch.Tensor] = set()
        self._reset()
        defaults = {
            "lr": 1.0 if lr is None else lr,
            "weight_decay": _number("weight_decay", weight_decay),
            "decay_vectors": session.decays_everything,
            "d": 0.0,
            _KEY: self._numbers(),
        }
        super().__init__(_groups(params), defaults)
        if not callable(self._no_decay_rule):
            for pattern in self._no_decay_rule:
                if pattern not in self._matched:
                    raise ValueError(f"no_decay: no parameter is called {pattern!r}{_known(self._names.values())}")
        _loss.listeners.add(self)

    def __repr__(self) -> str:
        groups = [{k: v for k, v in group.items() if k not in ("params", _KEY)} for group in self.param_groups]
        lines = [f"  {len(group['params'])} parameters: {shown}" for group, shown in zip(self.param_groups, groups)]
        return "\n".join([f"{type(self).__name__} ({self.method}, total_steps={self._total_steps})", *lines])

    # What is made and kept

    def _make_session(self, method: str, total_steps: int | None, averaging: str | None) -> None:
        if total_steps is not None:
            whole = not isinstance(total_steps, bool) and isinstance(total_steps, int)
            if not whole or total_steps <= 0:
                raise ValueError(f"total_steps={total_steps!r} must be a whole number above 0: the optimizer's steps in the whole run")
        name, _, method = _untuned.parse(method)
        try:
            self._session = _untuned.Session(method, total_steps, averaging)
        except _untuned.StepsNeeded:
            without = ', or decay="none"' if name == "polyak-adam" else ""
            raise ValueError(
                f"{CLASSES[name]} needs the number of steps of the whole run: "
                f"untuned.{CLASSES[name]}(model, total_steps=10_000){without}"
            ) from None
        self._total_steps, self._averaging = total_steps, averaging
        self._vectors = self._session.vectors

    def _reset(self) -> None:
        """What is not saved."""
        self._seen = _loss.SeenLoss()
        self._configured: Any = None
        self._compared_ranks = False
        self._evaluating = False
        self._clipping_warned = False
        self._without_gradient_warned = False
        self._method_warned: str | None = None

    #: the steps refused in a row
    _refusals = 0
    #: the geometric mean of the sizes of matrices at the start, where the method has scales
    _unit: float | None = None
    #: the effective rate and the gradient's norm of the last step
    _last = (0.0, 0.0)

    @property
    def method(self) -> str:
        """The method and its parameters as a spec string."""
        return self._session.spec

    @property
    def steps(self) -> int:
        """The steps so far, refused ones included."""
        return self._session.steps

    @property
    def rate(self) -> float:
        """The effective rate of the last step: what a unit of the (preconditioned) gradient was multiplied with."""
        return self._last[0]

    @property
    def grad_norm(self) -> float:
        """The gradient's norm in the last step."""
        return self._last[1]

    @property
    def estimate(self) -> float | None:
        """The number that the method estimates on the way, such as Prodigy's `d`."""
        return self._session.estimate

    @property
    def warning(self) -> str | None:
        """What you should know of how the run goes: an estimate that is stuck, a rate that grows without end."""
        return self._session.warning

    def _numbers(self) -> torch.Tensor:
        """What is saved beside the vectors, as text in a tensor of bytes."""
        numbers = {
            "format": 1,
            "method": self._session.spec,
            "total_steps": self._total_steps,
            "averaging": self._averaging,
            "unit": self._unit,
            "refusals": self._refusals,
            "session": self._session.save(),
        }
        text = json.dumps(numbers).encode()
        text += b" " * (-len(text) % _BLOCK)
        return torch.frombuffer(bytearray(text), dtype=torch.uint8)

    def _use_numbers(self, numbers: dict[str, Any]) -> None:
        self._session.load(numbers["session"])
        self._unit, self._refusals = numbers["unit"], numbers["refusals"]

    def _read_numbers(self, groups: list[dict[str, Any]]) -> dict[str, Any]:
        saved = groups[0].get(_KEY) if groups else None
        if saved is None:
            raise ValueError("this is no state of an optimizer of untuned")
        numbers = json.loads(bytes(saved.cpu().numpy().tobytes() if hasattr(saved, "numpy") else saved))
        if numbers.get("format") != 1:
            raise ValueError(f"the state has the format {numbers.get('format')}, and this version reads 1: update untuned")
        for what, here in [
            ("method", self._session.spec),
            ("total_steps", self._total_steps),
            ("averaging", self._averaging),
        ]:
            if numbers[what] != here:
                raise ValueError(
                    f"the state was saved with {what}={numbers[what]!r}, and this optimizer has {what}={here!r}: "
                    f"make the optimizer with {what}={numbers[what]!r}"
                )
        return numbers

    # Parameters

    def _name(self, parameter: torch.Tensor) -> str:
        name = self._names.get(parameter)
        if name is not None:
            return f"parameter {name!r}"
        for at, group in enumerate(self.param_groups):
            for index, other in enumerate(group["params"]):
                if other is parameter:
                    return f"parameter {index} of group {at} (shape {tuple(parameter.shape)})"
        return f"a parameter of shape {tuple(parameter.shape)}"

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, also in the middle of a run."""
        if not isinstance(param_group, dict):
            raise TypeError(f"a group of parameters must be a dict, and this is {type(param_group).__name__}")
        group = dict(param_group)
        if "params" not in group:
            raise ValueError('a group of parameters must have "params"')
        named = _named(group["params"])
        group["params"] = [parameter for _, parameter in named]
        group.pop("param_names", None)
        if not named:
            raise ValueError("a group has no parameters: is the model empty, or a generator used twice?")
        if "weight_decay" in group:
            group.setdefault("decay_vectors", True)
        for key in ("lr", "weight_decay"):
            if key in group and not isinstance(group[key], torch.Tensor):
                group[key] = _number(key, group[key])
        devices = {p.device for p in chain(self._names, group["params"]) if isinstance(p, torch.Tensor)}
        for name, parameter in named:
            _check(parameter, f"parameter {name!r}" if name else "a parameter", devices)
        kept = [parameter for name, parameter in named if self._keeps_from_decay(name, parameter)]
        super().add_param_group(group)
        self._names.update({parameter: name for name, parameter in named})
        self._sharded = any(map(is_sharded, self._names))
        self._kept_from_decay.update(kept)
        self._configured = None

    def _keeps_from_decay(self, name: str | None, parameter: torch.Tensor) -> bool:
        rule = self._no_decay_rule
        if not rule:
            return False
        if name is None:
            raise ValueError("no_decay needs the names of parameters: give the model itself, or model.named_parameters()")
        if callable(rule):
            return bool(rule(name, parameter))
        parts = name.split(".")
        matched = {p for p in rule if p == name or p in parts or fnmatch.fnmatchcase(name, p)}
        self._matched |= matched
        return bool(matched)

    def _listening(self) -> list[torch.Tensor]:
        """The parameters that are trained."""
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

    def _wide(self, parameter: torch.Tensor) -> torch.dtype:
        return torch.float64 if parameter.dtype == torch.float64 else torch.float32

    @torch.no_grad()
    def _make_state(self, parameters: list[torch.Tensor]) -> None:
        """Makes the vectors of parameters that have none."""
        late = self._unit is not None or self._session.steps > 0
        scales = [1.0] * len(parameters)
        if self._session.needs_scales:
            squares = _untuned.squares(list(map(local, parameters)), torch.get_num_threads())
            if self._sharded:
                parts = [self._share(p) * s for p, s in zip(parameters, squares)]
                squares = self._ranks.loss_and_sums([0.0, *parts])[1:]
            if late:
                size = [
                    math.sqrt(s / p.numel()) if p.dim() >= 2 and p.numel() else 0.0 for p, s in zip(parameters, squares)
                ]
                unit = self._unit
                scales = [s / unit if unit and s > 0 and math.isfinite(s) else 1.0 for s in size]
            else:
                shapes = [(p.dim() >= 2, max(p.numel(), 1), s) for p, s in zip(parameters, squares)]
                scales = _untuned.scales(shapes)
                units = (
                    math.sqrt(s / n) / scale
                    for (matrix, n, s), scale in zip(shapes, scales)
                    if matrix and 0 < s < math.inf
                )
                self._unit = next(units, None)
        for parameter, scale in zip(parameters, scales):
            state = self.state[parameter]
            if self._session.needs_scales:
                state["scale"] = torch.tensor(scale, dtype=torch.float64)
            for name, copies in self._vectors:
                vector = torch.zeros_like(parameter, dtype=self._wide(parameter))
                if copies:
                    vector.copy_(parameter)
                state[name] = vector
        self._configured = None

    def _states(self, parameters: list[torch.Tensor]) -> list[dict[str, Any]]:
        states = [self.state[p] for p in parameters]
        if self._vectors or self._session.needs_scales:
            new = [p for p, state in zip(parameters, states) if not state]
            if new:
                self._check_known(new)
                self._make_state(new)
        return states

    def _check_known(self, parameters: list[torch.Tensor]) -> None:
        for parameter in parameters:
            if parameter not in self._names:
                raise RuntimeError(
                    f"{self._name(parameter)} was put in place of others after the optimizer was made, as DeepSpeed's ZeRO does with its flat "
                    "partitions: the shapes are lost, and sums would be those of one rank. Use DDP or FSDP2 (torch.distributed.fsdp.fully_shard)"
                )

    def _share(self, parameter: torch.Tensor) -> float:
        try:
            return self._ranks.share(parameter) if self._sharded else 1.0
        except RuntimeError as error:
            raise RuntimeError(f"{self._name(parameter)}: {error}") from None

    def _compare_ranks(self, parameters: list[torch.Tensor]) -> None:
        """Checks before the first step that ranks train the same parameters with the same method."""
        if self._compared_ranks:
            return
        self._compared_ranks = True
        if self._ranks.count() < 2 or not (self._sharded or self._session.needs_loss):
            return
        whole = [p for p in parameters if not is_sharded(p)]
        method = (self._session.spec, self._total_steps, self._averaging, self._session.save())
        shapes = [(tuple(p.shape), p.dtype, is_sharded(p)) for p in parameters]
        values = _untuned.squares(whole, torch.get_num_threads())
        self._ranks.check_alike(
            [method, shapes, values],
            [
                "has another method, other total_steps or another saved state than rank 0",
                "trains other parameters than rank 0, as with ZeroRedundancyOptimizer or a pipeline: use DDP or FSDP2 (fully_shard)",
                "has other parameter values than rank 0: wrap the model in DistributedDataParallel, or start all ranks alike",
            ],
        )

    def _lists(self, parameters: list[torch.Tensor], states: list[dict[str, Any]]) -> list[list[torch.Tensor]]:
        try:
            lists = [[state[name] for state in states] for name, _ in self._vectors]
            return [list(map(local, vectors)) for vectors in lists] if self._sharded else lists
        except KeyError as error:
            lacking = next(p for p, state in zip(parameters, states) if error.args[0] not in state)
            raise RuntimeError(f"the state of {self._name(lacking)} has no {error.args[0]!r}") from None

    def _configure(self, parameters: list[torch.Tensor], states: list[dict[str, Any]]) -> float:
        """Tells the session the options of each tensor, where they have changed, and returns the largest decay."""
        decays = [(group["weight_decay"], group["decay_vectors"]) for group in self.param_groups]
        rates = [float(group["lr"]) for group in self.param_groups]
        rates = [rate / max(rates) if rate > 0 else 1.0 for rate in rates]
        key = (list(map(id, parameters)), decays, rates)
        largest = max(float(decay) for decay, _ in decays)
        if self._configured == key:
            return largest
        if not (math.isfinite(largest) and all(float(decay) >= 0 for decay, _ in decays)):
            raise ValueError(f"weight_decay must be finite, and 0 or more: {[float(d) for d, _ in decays]}")
        self._check_known(parameters)
        of = {p: (group, rate) for group, rate in zip(self.param_groups, rates) for p in group["params"]}
        options = []
        for parameter, state in zip(parameters, states):
            group, rate = of[parameter]
            decay, vectors = float(group["weight_decay"]), group["decay_vectors"]
            decays_here = decay > 0 and (vectors or parameter.dim() >= 2) and parameter not in self._kept_from_decay
            factor = decay / largest if decays_here else 0.0
            scale = float(state["scale"]) if "scale" in state else 1.0
            share = self._share(parameter)
            options.append(_TensorOptions(factor, scale, rate, share, parameter.numel()))
        if self._session.name in ("momo", "momo-adam") and {option.decay for option in options} - {0.0, 1.0}:
            raise ValueError(
                f"{CLASSES[self._session.name]} takes one weight_decay for all that decays, and the groups have "
                f"{sorted({float(d) for d, _ in decays})}: give them one value, or 0"
            )
        self._session.configure(options)
        self._configured = key
        return largest

    # Steps

    def _rate(self) -> float:
        """What multiplies the rate that the method finds, in the group with the largest."""
        rates = {float(group["lr"]) for group in self.param_groups}
        for rate in rates:
            if not (math.isfinite(rate) and rate >= 0):
                raise ValueError(f"lr={rate} must be finite, and 0 or more")
        if len(rates - {0.0}) > 1 and self._session.name not in _OWN_RATES:
            raise ValueError(
                f"{CLASSES[self._session.name]} has one rate for all parameters, and the groups have lr={sorted(rates)}: give them the same lr, "
                "or 0 to those that stay"
            )
        largest = max(rates)
        return largest if self._own_lr is None else largest / self._own_lr

    def _staying(self) -> set[torch.Tensor]:
        """The parameters of groups with a rate of 0, where others move."""
        rates = [float(group["lr"]) for group in self.param_groups]
        if not any(rates):
            return set()
        return {p for group, rate in zip(self.param_groups, rates) if rate == 0 for p in group["params"]}

    def step(self, closure: Any = None, *, loss: Any = None) -> Any:
        """Makes a step.

        Args:
            closure: computes the loss, calls `backward()`, and returns the loss. A loss is taken here, too: `step(loss)`.
            loss: the loss that was differentiated, where `backward()` was not called on it.
        """
        if closure is not None and not callable(closure):
            if loss is not None:
                raise TypeError("the loss is given twice: type optimizer.step(loss)")
            loss, closure = closure, None
        if self._evaluating:
            raise RuntimeError("step() inside of evaluation(): the parameters are at another point there. Leave the with block first")
        returned = None
        if closure is not None:
            with torch.enable_grad():
                returned = closure()
        with torch.no_grad():
            self._step(loss, returned)
        return returned

    # torch.compile leaves the step out by itself.
    step._torchdynamo_disable = True  # type: ignore[attr-defined]

    def _step(self, loss: Any, returned: Any) -> None:
        parameters = self._listening()
        found_inf, grad_scale = self.__dict__.get("found_inf"), self.__dict__.get("grad_scale")
        rate = self._rate()
        gradients = [p.grad for p in parameters]
        if not parameters or not any(g is not None for g in gradients):
            raise RuntimeError("no parameter has a gradient: call loss.backward() before optimizer.step()")
        if rate == 0 and loss is None and returned is None and not self._seen and _all_zero(gradients):
            # torch.distributed.checkpoint steps so, to make the state.
            self._states(parameters)
            return
        if found_inf is not None and float(found_inf) > 0:
            self._session.skip()
            self._seen = _loss.SeenLoss()
            return
        seen = self._seen
        self._notice_changes()
        self._compare_ranks(parameters)
        value = self._loss_value(loss, returned, found_inf is not None)
        self._seen = _loss.SeenLoss()
        if grad_scale is not None:
            torch._foreach_mul_([g for g in gradients if g is not None], 1.0 / float(grad_scale))
        self._name_those_without_gradient(parameters, gradients)
        staying = self._staying()
        if staying:
            gradients = [None if p in staying else g for p, g in zip(parameters, gradients)]
        states = self._states(parameters)
        lists = self._lists(parameters, states)
        decay = self._configure(parameters, states)
        try:
            self._last = self._call(parameters, gradients, lists, value, rate, decay)
        except _untuned.Refused as refusal:
            kind, text = refusal.args
            if kind == "past-horizon":
                self._seen = seen
                raise RuntimeError(
                    f"{text}\nHere: make the optimizer with a larger total_steps than {self._total_steps}"
                ) from None
            self._refuse(text, parameters, gradients)
            return
        self._refusals = 0
        changed = [p for p, g in zip(parameters, gradients) if g is not None]
        _tell_autograd(changed)
        largest = max(float(group["lr"]) for group in self.param_groups)
        for group in self.param_groups:
            group["d"] = self._last[0] / largest if largest else 0.0
        warning = self._session.warning
        if warning is not None and self._method_warned is None:
            self._method_warned = warning
            warnings.warn(f"{self._session.name}: {warning}", stacklevel=4)

    def _call(
        self,
        parameters: list[torch.Tensor],
        gradients: list[torch.Tensor | None],
        lists: list[list[torch.Tensor]],
        loss: float | None,
        rate: float,
        decay: float,
    ) -> tuple[float, float]:
        threads = torch.get_num_threads()
        here, gather = parameters, None
        if self._sharded:
            here = list(map(local, parameters))
            gradients = [g if g is None else like(p, g) for p, g in zip(parameters, gradients)]
            gather = self._ranks.loss_and_sums
        try:
            return self._session.step(here, gradients, lists, loss, rate, decay, threads, gather)
        except _untuned.TensorMismatch as mismatch:
            if mismatch.args[0] != -1:
                raise self._explain(mismatch, parameters, gradients) from None
        # Gradients may have another layout or type than their parameters. That is rare: they are copied then.
        gradients = [g if g is None else self._laid_out(p, h, g) for p, h, g in zip(parameters, here, gradients)]
        try:
            return self._session.step(here, gradients, lists, loss, rate, decay, threads, gather)
        except _untuned.TensorMismatch as mismatch:
            raise self._explain(mismatch, parameters, gradients) from None

    def _laid_out(self, named: torch.Tensor, parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """A gradient in the type and layout of its parameter."""
        what = f"the gradient of {self._name(named)}"
        if gradient.layout != torch.strided:
            raise RuntimeError(f"{what} is sparse; make the embedding with sparse=False")
        if gradient.device != parameter.device:
            raise RuntimeError(f"{what} is on {gradient.device}, and the parameter is on {parameter.device}")
        if gradient.shape != parameter.shape:
            raise RuntimeError(f"{what} has the shape {tuple(gradient.shape)}, not {tuple(parameter.shape)}")
        same = gradient.dtype == parameter.dtype and gradient.stride() == parameter.stride()
        return gradient if same else torch.empty_like(parameter).copy_(gradient)

    def _explain(
        self, mismatch: Exception, parameters: list[torch.Tensor], gradients: list[Any]
    ) -> Exception:
        vector, index, what, text = mismatch.args
        parameter = parameters[index]
        role = {-2: "", -1: "the gradient of "}.get(vector, f"the state {self._vectors[max(vector, 0)][0]!r} of ")
        name = f"{role}{self._name(parameter)}"
        if what == "overlap":
            return RuntimeError(f"{name} shares memory with another tensor: give each tensor once, and no views of it")
        if what == "device":
            return RuntimeError(f"{name}: {_NO_CUDA if vector == -2 else 'it is not on the CPU'}")
        if vector >= 0:
            return RuntimeError(f"{name} does not fit the parameter any more: {text}. Make the optimizer after you change the model")
        return RuntimeError(f"{name} cannot be used: {text}")

    def _loss_value(self, loss: Any, returned: Any, scaling: bool) -> float | None:
        """The loss that belongs to the gradients."""
        seen, needs = self._seen, self._session.needs_loss
        how = "call loss.backward(), or type optimizer.step(loss), or optimizer.step(closure)"
        if loss is None and not seen:
            loss = returned
        if loss is not None:
            if isinstance(loss, torch.Tensor) and loss.numel() != 1:
                raise ValueError(f"the loss has the shape {tuple(loss.shape)}; a single number is needed, such as loss.mean()")
            try:
                value = float(loss)
            except (TypeError, ValueError):
                raise TypeError(f"the loss must be a number or a tensor, and it is {type(loss).__name__}: {how}") from None
        elif not seen:
            if not needs:
                return None
            raise RuntimeError(
                f"{CLASSES[self._session.name]} needs the loss, and no loss was seen since the last step: {how}"
            )
        elif seen.problem is not None:
            if not needs:
                return None
            raise RuntimeError(f"{seen.problem}, which is no loss: type optimizer.step(loss) with the number that was differentiated")
        else:
            if scaling and needs and seen.scaled != {True}:
                raise RuntimeError(
                    "the loss changed after GradScaler.scale(): call scaler.scale(loss).backward(), or type "
                    "scaler.step(optimizer, loss=loss)"
                )
            value = float(seen.sum)  # type: ignore[arg-type]
        if not needs:
            return None
        # With shards the loss goes with the sums.
        return value if self._sharded else self._ranks.mean(value)

    # Torch 2.4 does not look at the mark of `step`.
    _step._torchdynamo_disable = True  # type: ignore[attr-defined]

    def _notice_changes(self) -> None:
        """Warns when gradients have changed since the backward pass."""
        seen = self._seen
        if not seen or self._clipping_warned or not self._options["warn_clipping"] or not self._session.needs_loss:
            return
        if _loss.marks(self._listening()) != seen.marks:
            self._clipping_warned = True
            warnings.warn(
                f"gradients changed between backward() and step(), as clipping does. {CLASSES[self._session.name]} needs the gradient "
                "that belongs to the loss: turn clipping off (Hugging Face: max_grad_norm=0; Lightning: gradient_clip_val=None). "
                "warn_clipping=False silences this",
                stacklevel=5,
            )

    def _name_those_without_gradient(self, parameters: list[torch.Tensor], gradients: list[Any]) -> None:
        if self._without_gradient_warned or all(g is not None for g in gradients):
            return
        self._without_gradient_warned = True
        names = [self._name(p) for p, g in zip(parameters, gradients) if g is None]
        rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
        warnings.warn(f"no gradient, left alone: {', '.join(names[:3])}{rest}. This is said once", stacklevel=5)

    def _refuse(self, text: str, parameters: list[torch.Tensor], gradients: list[Any]) -> None:
        self._session.skip()
        self._refusals += 1
        pairs = ((p, g) for p, g in zip(parameters, gradients) if g is not None)
        bad = [self._name(p) for p, g in pairs if not bool(torch.isfinite(local(g)).all())]
        where = f" (not finite: the gradient of {', '.join(bad[:3])}{' and others' if len(bad) > 3 else ''})" if bad else ""
        if self._refusals >= self._options["max_refusals"]:
            raise RuntimeError(
                f"{text}{where}. {self._refusals} steps in a row were refused; the parameters are those of the last step that was made"
            )
        warnings.warn(f"{text}{where}. The step was not made, and nothing changed", stacklevel=5)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops all gradients, and the losses that they are of."""
        super().zero_grad(set_to_none)
        self._seen = _loss.SeenLoss()

    # Evaluation

    @contextlib.contextmanager
    def evaluation(self) -> Iterator[Optimizer]:
        """Puts the point to evaluate into the parameters, and takes it out again.

        For Schedule-Free methods, and with `averaging`, it is another point than the one that is trained.

        >>> import torch, untuned
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = untuned.ScheduleFreeAdamW(model)
        >>> with optimizer.evaluation():
        ...     saved = model.state_dict()
        """
        if self._evaluating:
            raise RuntimeError("evaluation() inside of evaluation()")
        parameters = [p for p in self._listening() if self.state.get(p)]
        trained: list[torch.Tensor] = []
        if self._session.has_evaluation_point and parameters:
            with torch.no_grad():
                here = [local(p) for p in parameters]
                states = [self.state[p] for p in parameters]
                lists = self._lists(parameters, states)
            trained = [p.detach().clone() for p in here]
            self._configure(parameters, states)
            try:
                self._session.write_evaluation_point(trained, lists, here, torch.get_num_threads())
            except _untuned.TensorMismatch as mismatch:
                raise self._explain(mismatch, parameters, []) from None
            _tell_autograd(parameters)
        self._evaluating = True
        try:
            yield self
        finally:
            self._evaluating = False
            with torch.no_grad():
                for parameter, value in zip(parameters, trained):
                    local(parameter).copy_(value)

    # Saving

    def state_dict(self) -> dict[str, Any]:
        """Returns all that is needed to go on to the same bits."""
        numbers = self._numbers()
        for group in self.param_groups:
            group[_KEY] = numbers
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where `state_dict` was called.

        The method and `total_steps` must be the same. Nothing changes where they are not.
        """
        given: dict[str, Any] = {}

        def check(_: Any, saved: dict[str, Any]) -> None:
            given.update(saved, numbers=self._read_numbers(saved["param_groups"]))

        handle = self.register_load_state_dict_pre_hook(check)
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()
        # Torch has made the state what the parameters are: bf16, for example. It must be what was saved.
        saved = chain.from_iterable(group["params"] for group in given["param_groups"])
        here = chain.from_iterable(group["params"] for group in self.param_groups)
        for key, parameter in zip(saved, here):
            if key in given["state"]:
                self.state[parameter] = {
                    name: self._restored(parameter, name, value) for name, value in given["state"][key].items()
                }
        self._use_numbers(given["numbers"])
        self._reset()

    def _restored(self, parameter: torch.Tensor, name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if name == "scale":
            return value.detach().to("cpu", torch.float64, copy=True)
        return torch.empty_like(parameter, dtype=self._wide(parameter), requires_grad=False).copy_(value.detach())

    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            "_numbers": self._numbers(),
            "_names": self._names,
            "_kept_from_decay": list(self._kept_from_decay),
            "_no_decay_rule": self._no_decay_rule,
            "_own_lr": self._own_lr,
            "_options": self._options,
            "_process_group": False if self._ranks.process_group is False else None,
            "_sharded": self._sharded,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        numbers = state.pop("_numbers", None)
        super().__setstate__(state)
        if numbers is None:
            return
        self._ranks = Ranks(self.__dict__.pop("_process_group"))
        numbers = json.loads(numbers.numpy().tobytes())
        self._make_session(numbers["method"], numbers["total_steps"], numbers["averaging"])
        self._use_numbers(numbers)
        self._kept_from_decay, self._matched = set(self._kept_from_decay), set()
        self._reset()
        _loss.listeners.add(self)


_NO_CUDA = "it is not on the CPU. GPUs are not supported yet: keep the model on the CPU"


def _tell_autograd(changed: list[torch.Tensor]) -> None:
    """Raises the versions of tensors that Rust has written, so that autograd notices."""
    try:
        torch.autograd.graph.increment_version(changed)
    except (RuntimeError, TypeError):
        # An older torch takes one tensor.
        for tensor in changed:
            torch.autograd.graph.increment_version(tensor)


def _all_zero(gradients: list[Any]) -> bool:
    return not any(bool(torch.count_nonzero(local(g))) for g in gradients if g is not None)


def _own_lr(method: Method) -> Any:
    """The default of the method's own `lr`, True where it must be given, and None where it has none."""
    for parameter in method.parameters:
        if parameter.name == "lr":
            return True if parameter.required else parameter.default
    return None


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={value!r} must be a number") from None
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name}={value} must be finite, and 0 or more")
    return number


def _known(names: Iterable[str | None]) -> str:
    known = [name for name in names if name]
    rest = ", …" if len(known) > 5 else ""
    return f"; there are {', '.join(known[:5])}{rest}" if known else ""


def _groups(params: Any) -> list[dict[str, Any]]:
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


def _named(params: Any) -> list[tuple[str | None, torch.Tensor]]:
    if isinstance(params, torch.nn.Module):
        return list(params.named_parameters())
    if isinstance(params, torch.Tensor):
        return [(None, params)]
    if isinstance(params, (set, frozenset)):
        raise TypeError("parameters must stand in a list: the order of a set changes from run to run")
    return [item if isinstance(item, tuple) else (None, item) for item in params]


def _check(parameter: Any, name: str, devices: set[torch.device]) -> None:
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
    if parameter.device.type != "cpu":
        raise NotImplementedError(f"{name} is on {parameter.device}: {_NO_CUDA}")
    if parameter.layout != torch.strided:
        raise TypeError(f"{name} is sparse; make it dense with .to_dense()")
    if parameter.dtype not in _FLOATS:
        raise TypeError(f"{name} holds {parameter.dtype}; only {', '.join(map(str, _FLOATS))} can be trained")
    with torch.no_grad():
        here = local(parameter)
    if not torch._debug_has_internal_overlap(here) == 0 or not _is_dense(here):
        raise ValueError(f"{name} does not fill a block of memory; train parameter.contiguous() instead")


def _is_dense(parameter: torch.Tensor) -> bool:
    sides = sorted((stride, size) for stride, size in zip(parameter.stride(), parameter.shape) if size != 1)
    want = 1
    for stride, size in sides:
        if stride != want:
            return parameter.numel() == 0
        want *= size
    return True


# The classes


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
    for parameter in list(inspect.signature(Optimizer.__init__).parameters.values())[4:]:
        if parameter.name not in taken:
            parameters.append(parameter)
    return parameters


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
    """Makes an optimizer by the spec string of its method.

    >>> import torch, untuned
    >>> model = torch.nn.Linear(2, 1)
    >>> untuned.optimizer("prodigy:d0=1e-5", model).method
    'prodigy:d0=1e-5'
    """
    name, given, _ = _untuned.parse(spec)
    kinds = {parameter.name: parameter.kind for parameter in table()[name].parameters}
    values = {key: value == "yes" if kinds[key] == "bool" else value for key, value in given.items()}
    values = {key: int(value) if kinds[key] == "whole" else value for key, value in values.items()}
    twice = set(values) & set(kwargs)
    if twice:
        raise ValueError(f"`{spec}` and the arguments both give {sorted(twice)}")
    return globals()[CLASSES[name]](params, total_steps, **values, **kwargs)


def hugging_face_arguments() -> dict[str, Any]:
    """The arguments of Hugging Face's `TrainingArguments` that must be neutral: no clipping, and a constant schedule.

    >>> import untuned
    >>> untuned.hugging_face_arguments()["max_grad_norm"]
    0.0
    """
    return {"max_grad_norm": 0.0, "lr_scheduler_type": "constant", "warmup_steps": 0}
