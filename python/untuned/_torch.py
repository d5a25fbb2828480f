"""The methods as optimizers of PyTorch."""

from __future__ import annotations

import contextlib
import copy
import fnmatch
import json
import math
import warnings
from itertools import chain
from typing import Any, Callable, Iterable, Iterator, NamedTuple

import torch

from . import _cuda, _loss, _untuned
from ._catalog import CLASSES, Method, spec_of, table
from ._parameters import Slot, check, groups_of, named_parameters, number, some_names
from ._ranks import HeldGradients, Ranks, is_sharded, like, local
from ._warnings import UntunedWarning

#: The numbers of a session are saved as text in a tensor, whose length is a multiple of this. The length must not change, because
#: torch.distributed.checkpoint loads into existing tensors.
_BLOCK = 4096
_KEY = "untuned"
#: The layout of that text.
_FORMAT = 1


class _TensorOptions(NamedTuple):
    """The options of one tensor in a session."""

    #: the tensor's factor on the run's weight decay
    decay: float
    scale: float
    #: the tensor's factor on the run's rate
    rate: float
    #: the tensor's share of the sums over all ranks
    share: float
    #: the number of elements on all ranks together
    numbers: int


class Optimizer(torch.optim.Optimizer):
    """Any method of the library as an optimizer of PyTorch.

    Each method is also a class of its own, with its parameters as arguments: :class:`untuned.PolyakAdam`, :class:`untuned.Prodigy`.

    untuned reads the loss in `loss.backward()`. Where that is not possible, give the loss: `optimizer.step(loss)`.

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
        averaging: "uniform", "polynomial:8" or "ema:0.999": keeps this average of the parameters for :meth:`evaluation`.
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
            lr = number("lr", lr)
            if own and "lr" not in given:
                _, given, method = _untuned.parse(spec_of(name, {**given, "lr": lr}))
            elif own and given["lr"] != lr:
                raise ValueError(f"lr={lr} and `{method}` differ: give lr once")
        if own:
            lr = given.get("lr", own)
        if lr is not None and own in (None, 1.0) and 0 < lr < 0.01:
            warnings.warn(
                f"lr={lr} multiplies the rate that {CLASSES[name]} finds, so that its steps are {1 / lr:.0f} times shorter: "
                "leave lr out, or set it to 1",
                UntunedWarning,
                stacklevel=3,
            )
        self._make_session(method, total_steps, averaging)
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
        self._slots: list[list[Slot]] = []
        self._reset()
        defaults = {
            "lr": 1.0 if lr is None else lr,
            "weight_decay": number("weight_decay", weight_decay),
            "decay_vectors": session.decays_everything,
            "d": 0.0,
            _KEY: self._numbers(),
        }
        super().__init__(groups_of(params), defaults)
        if not callable(self._no_decay_rule):
            for pattern in self._no_decay_rule:
                if pattern not in self._matched:
                    raise ValueError(f"no_decay: no parameter is called {pattern!r}{some_names(slot.name for slot in chain(*self._slots))}")
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
        self._read_progress()

    def _read_progress(self) -> None:
        """Copies what a user may ask for, also on another thread while a step is made."""
        self._progress = self._session.steps, self._session.estimate, self._session.warning

    def _reset(self) -> None:
        """What is not saved."""
        self._seen = _loss.SeenLoss()
        self._configured: Any = None
        self._compared_ranks = False
        self._evaluating = False
        self._clipping_warned = False
        self._lacking_warned = False
        self._without_gradient_warned = False
        self._method_warned: str | None = None
        #: the refusals of the GPU that nobody was told of
        self._unreported: list[Any] = []

    #: the steps refused in a row, and altogether
    _refusals, _refused_steps = 0, 0
    #: whether the state was made by torch.distributed.checkpoint, for its shapes: weights may have been loaded since
    _is_template = False
    #: the geometric mean of the sizes of matrices at the start, where the method has scales
    _unit: float | None = None
    #: where steps are made, if it is not the CPU
    _gpu: _cuda.Gpu | None = None
    #: the effective rate and the gradient's norm of the last step
    _last = (0.0, 0.0)

    @property
    def method(self) -> str:
        """The method and its parameters as a spec string."""
        return self._session.spec

    @property
    def steps(self) -> int:
        """The steps so far, refused ones included."""
        self._settle()
        return self._progress[0]

    @property
    def refused_steps(self) -> int:
        """The steps that were not made because the loss or a gradient was NaN or infinite. Steps that a GradScaler skips do not count."""
        self._settle()
        return self._refused_steps

    @property
    def rate(self) -> float:
        """The effective rate of the last step: what a unit of the (preconditioned) gradient was multiplied with."""
        self._settle()
        return self._last[0]

    @property
    def grad_norm(self) -> float:
        """The gradient's norm in the last step."""
        self._settle()
        return self._last[1]

    @property
    def estimate(self) -> float | None:
        """The number that the method estimates on the way, such as Prodigy's `d`."""
        self._settle()
        return self._progress[1]

    @property
    def warning(self) -> str | None:
        """What you should know of how the run goes: an estimate that is stuck, a rate that grows without end."""
        self._settle()
        return self._progress[2]

    def _settle(self) -> None:
        """Waits for the GPU, if there is one, and takes over its numbers."""
        if self._gpu is not None:
            self._session.settle()
            self._hear()

    def _hear(self) -> None:
        """Takes over what the GPU has come to."""
        progress = self._session.progress()
        if progress is not None:
            last, steps, estimate, warning, self._refused_steps, self._refusals, refusals = progress
            self._progress = steps, estimate, warning
            self._unreported += refusals
            if last is not None:
                self._last = last
                self._note_rate()

    def _report(self) -> None:
        """Says which steps the GPU refused."""
        while self._unreported:
            kind, text, in_a_row = self._unreported.pop(0)
            if kind == "past-horizon":
                raise self._past_horizon()
            if in_a_row >= self._options["max_refusals"]:
                raise self._too_many_refusals(text, in_a_row)
            warnings.warn(f"{text}. The step was not made, and nothing changed", UntunedWarning, stacklevel=5)

    def _numbers(self) -> torch.Tensor:
        """What is saved beside the vectors, as text in a tensor of bytes."""
        self._settle()
        numbers = {
            "format": _FORMAT,
            "method": self._session.spec,
            "total_steps": self._total_steps,
            "averaging": self._averaging,
            "unit": self._unit,
            "refusals": self._refusals,
            "refused_steps": self._refused_steps,
            "is_template": self._is_template,
            "session": self._session.save(),
        }
        text = json.dumps(numbers).encode()
        text += b" " * (-len(text) % _BLOCK)
        return torch.frombuffer(bytearray(text), dtype=torch.uint8)

    def _use_numbers(self, numbers: dict[str, Any]) -> None:
        self._unit, self._refusals = numbers["unit"], numbers["refusals"]
        self._refused_steps, self._is_template = numbers["refused_steps"], numbers["is_template"]
        self._session.load(numbers["session"], self._refused_steps, self._refusals)
        self._read_progress()

    def _read_numbers(self, groups: list[dict[str, Any]]) -> dict[str, Any]:
        saved = groups[0].get(_KEY) if groups else None
        if saved is None:
            raise ValueError("this is not the state of an untuned optimizer")
        numbers: dict[str, Any] = json.loads(bytes(saved.cpu().numpy().tobytes() if hasattr(saved, "numpy") else saved))
        found = numbers.get("format", 0)
        if found != _FORMAT:
            age, remedy = ("a newer", ": update untuned") if found > _FORMAT else ("an older", "")
            raise ValueError(
                f"{age} version of untuned wrote the state (format {found}), and this one reads format {_FORMAT}{remedy}"
            )
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
        for at, (group, slots) in enumerate(zip(self.param_groups, self._slots)):
            for index, (other, slot) in enumerate(zip(group["params"], slots)):
                if other is parameter:
                    return f"parameter {slot.name!r}" if slot.name else f"parameter {index} of group {at} (shape {slot.shape})"
        return f"a parameter of shape {tuple(parameter.shape)}"

    def _update_parameters(self) -> None:
        """Takes tensors that were put in place of others of the same shape, as Accelerate does with FSDP2's shards."""
        groups = [group["params"] for group in self.param_groups]
        tensors, slots = list(chain(*groups)), list(chain(*self._slots))
        if len(tensors) == len(slots) and all(slot.tensor() is tensor for slot, tensor in zip(slots, tensors)):
            return
        changed = None
        if [len(group) for group in groups] != [len(slots) for slots in self._slots]:
            changed = f"{len(tensors)} tensors in place of {len(slots)}"
        else:
            for slot, tensor in zip(slots, tensors):
                if tuple(tensor.shape) != slot.shape:
                    changed = f"{self._name(tensor)} has the shape {tuple(tensor.shape)} now"
        if changed is not None:
            raise RuntimeError(
                f"parameters were replaced after the optimizer was made, as DeepSpeed's ZeRO does with its flat partitions ({changed}): the "
                "shapes are lost, and sums would be those of one rank. Use DDP or FSDP2 (torch.distributed.fsdp.fully_shard)"
            )
        devices = {tensor.device for tensor in tensors}
        for tensor in tensors:
            check(tensor, self._name(tensor), devices)
        for slot, tensor in zip(slots, tensors):
            old = slot.tensor()
            if old is not None and old is not tensor and old in self.state:
                self.state[tensor] = self.state.pop(old)
            slot.put(tensor)
        self._note_shards()

    def _note_shards(self) -> None:
        """Looks which parameters are sharded, after they have changed."""
        parameters = list(chain(*(group["params"] for group in self.param_groups)))
        self._sharded = any(map(is_sharded, parameters))
        self._references = [[slot.tensor for slot in slots] for slots in self._slots]
        self._held = HeldGradients(parameters if self._sharded else [])
        self._configured = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, also in the middle of a run.

        >>> import torch, untuned
        >>> body, head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
        >>> optimizer = untuned.PolyakAdam(body, total_steps=100)
        >>> optimizer.add_param_group({"params": head.parameters(), "lr": 0.5})
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"a group of parameters must be a dict, and this is {type(param_group).__name__}")
        group = dict(param_group)
        if "params" not in group:
            raise ValueError('a group of parameters must have "params"')
        named = named_parameters(group["params"])
        group["params"] = [parameter for _, parameter in named]
        group.pop("param_names", None)
        if not named:
            raise ValueError("a group has no parameters: is the model empty, or a generator used twice?")
        if "weight_decay" in group:
            group.setdefault("decay_vectors", True)
        for key in ("lr", "weight_decay"):
            if key in group and not isinstance(group[key], torch.Tensor):
                group[key] = number(key, group[key])
        there = chain(*(group["params"] for group in self.param_groups))
        devices = {p.device for p in chain(there, group["params"]) if isinstance(p, torch.Tensor)}
        for name, parameter in named:
            check(parameter, f"parameter {name!r}" if name else "a parameter", devices)
        slots = [Slot(parameter, name, self._is_exempt_from_decay(name, parameter)) for name, parameter in named]
        super().add_param_group(group)
        self._slots.append(slots)
        self._note_shards()

    def _is_exempt_from_decay(self, name: str | None, parameter: torch.Tensor) -> bool:
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

    def _trained(self) -> list[torch.Tensor]:
        """The parameters that are trained."""
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

    def _look(self) -> Any:
        """The parameters that are trained, their gradients, marks of both, a gradient with a graph, and whether all have gradients."""
        groups = [group["params"] for group in self.param_groups]
        found = _untuned.look(groups, self._references)
        if found is None:
            self._update_parameters()
            found = _untuned.look(groups, self._references)
        return found

    def _wide(self, parameter: torch.Tensor) -> torch.dtype:
        return torch.float64 if parameter.dtype == torch.float64 else torch.float32

    @torch.no_grad()
    def _make_state(self, parameters: list[torch.Tensor]) -> None:
        """Makes the vectors of parameters that have none."""
        late = self._unit is not None or self._session.steps > 0
        scales = [1.0] * len(parameters)
        if self._session.needs_scales:
            squares = self._squares(parameters)
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
                self._make_state(new)
        return states

    def _squares(self, parameters: list[torch.Tensor]) -> list[float]:
        """The sum of squares of each parameter, or of this rank's part of it."""
        gpu = self._use_device(parameters)
        stream, sums = (0, 0) if gpu is None else (gpu.stream(), gpu.sums.data_ptr())
        try:
            return self._session.squares(list(map(local, parameters)), torch.get_num_threads(), stream, sums)
        except _untuned.TensorMismatch as mismatch:
            raise self._explain(mismatch, parameters) from None

    def _use_device(self, parameters: list[torch.Tensor]) -> _cuda.Gpu | None:
        """Makes steps where the parameters are. They may have moved since the last one."""
        if not parameters:
            return self._gpu
        device = parameters[0].device
        if device.type == "cpu":
            if self._gpu is not None:
                self._settle()
                self._session.leave_gpu()
                self._gpu = None
        elif self._gpu is None or self._gpu.device != device:
            self._settle()
            gpu = _cuda.Gpu(device)
            self._session.use_gpu(gpu.index, self._refused_steps, self._refusals)
            self._gpu = gpu
            _cuda.at_work.add(self)
        self._ranks.device = device
        return self._gpu

    def _share(self, parameter: torch.Tensor) -> float:
        try:
            return self._ranks.share(parameter) if self._sharded else 1.0
        except RuntimeError as error:
            raise RuntimeError(f"{self._name(parameter)}: {error}") from None

    def _compare_ranks(self, parameters: list[torch.Tensor]) -> None:
        """Checks before the first step that ranks train the same parameters with the same method."""
        if self._compared_ranks:
            return
        if self._ranks.count() < 2:
            return
        whole = [p for p in parameters if not is_sharded(p)]
        method = (self._session.spec, self._total_steps, self._averaging, self._session.save())
        shapes = [(tuple(p.shape), p.dtype, is_sharded(p)) for p in parameters]
        values = self._squares(whole)
        self._ranks.check_alike(
            [method, shapes, values],
            [
                "has another method, other total_steps or another saved state than rank 0",
                "trains other parameters than rank 0, as with ZeroRedundancyOptimizer or a pipeline: use DDP or FSDP2 (fully_shard)",
                "has other parameter values than rank 0: wrap the model in DistributedDataParallel, or start all ranks alike",
            ],
        )
        self._compared_ranks = True

    def _lists(self, parameters: list[torch.Tensor], states: list[dict[str, Any]]) -> list[list[torch.Tensor]]:
        try:
            lists = [[state[name] for state in states] for name, _ in self._vectors]
            return [list(map(local, vectors)) for vectors in lists] if self._sharded else lists
        except KeyError as error:
            lacking = next(p for p, state in zip(parameters, states) if error.args[0] not in state)
            raise RuntimeError(f"the state of {self._name(lacking)} has no {error.args[0]!r}") from None

    def _configure(self, parameters: list[torch.Tensor], ids: bytes) -> float:
        """Gives the session the options of each tensor, where they have changed. Returns the largest decay. `ids` are the parameters'."""
        decays = [(group["weight_decay"], group["decay_vectors"]) for group in self.param_groups]
        rates = [float(group["lr"]) for group in self.param_groups]
        rates = [rate / max(rates) if rate > 0 else 1.0 for rate in rates]
        key = (ids, decays, rates)
        largest = max(float(decay) for decay, _ in decays)
        if self._configured == key:
            return largest
        if not (math.isfinite(largest) and all(float(decay) >= 0 for decay, _ in decays)):
            raise ValueError(f"weight_decay must be finite, and 0 or more: {[float(d) for d, _ in decays]}")
        of = {
            parameter: (group, slot, rate)
            for group, slots, rate in zip(self.param_groups, self._slots, rates)
            for parameter, slot in zip(group["params"], slots)
        }
        options = []
        for parameter in parameters:
            state = self.state.get(parameter, {})
            group, slot, rate = of[parameter]
            decay, vectors = float(group["weight_decay"]), group["decay_vectors"]
            decays_here = decay > 0 and (vectors or parameter.dim() >= 2) and not slot.no_decay
            factor = decay / largest if decays_here else 0.0
            scale = float(state["scale"]) if "scale" in state else 1.0
            share = self._share(parameter)
            options.append(_TensorOptions(factor, scale, rate, share, parameter.numel()))
        if self._session.takes_one_decay and {option.decay for option in options} - {0.0, 1.0}:
            raise ValueError(
                f"{CLASSES[self._session.name]} takes one weight_decay for all that decays, and the groups have "
                f"{sorted({float(d) for d, _ in decays})}: give them one value, or 0"
            )
        self._session.configure(options)
        self._configured = key
        return largest

    # Steps

    def _rate(self) -> float:
        """The factor on the rate that the method finds: that of the group with the largest `lr`."""
        rates = {float(group["lr"]) for group in self.param_groups}
        for rate in rates:
            if not (math.isfinite(rate) and rate >= 0):
                raise ValueError(f"lr={rate} must be finite, and 0 or more")
        if len(rates - {0.0}) > 1 and not self._session.takes_group_rates:
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

    @_loss.not_compiled
    def step(self, closure: Any = None, *, loss: Any = None) -> Any:
        """Makes a step.

        Args:
            closure: computes the loss, calls `backward()`, and returns the loss. A loss is taken here, too: `step(loss)`.
            loss: the loss that was differentiated, where `backward()` was not called on it.

        >>> import torch, untuned
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = untuned.PolyakAdam(model, total_steps=100)
        >>> loss = model(torch.ones(4, 2)).square().mean()
        >>> loss.backward()
        >>> optimizer.step()  # or optimizer.step(loss)
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
        compiler = _loss.set_eval_frame(None)
        try:
            with torch.no_grad():
                self._step(loss, returned)
        finally:
            _loss.set_eval_frame(compiler)
        return returned

    # Torch 2.4 does not look at the mark of `step`.
    @_loss.not_compiled
    def _step(self, loss: Any, returned: Any) -> None:
        parameters, gradients, ids, marks, with_graph, complete = self._look()
        found_inf, grad_scale = self.__dict__.get("found_inf"), self.__dict__.get("grad_scale")
        rate = self._rate()
        if not complete and all(g is None for g in gradients) or not parameters:
            raise RuntimeError("no parameter has a gradient: call loss.backward() before optimizer.step()")
        if rate == 0 and loss is None and returned is None and not self._seen and _all_zero(gradients):
            # torch.distributed.checkpoint makes such a step, so that the state exists.
            self._is_template |= self._session.steps == 0 and not any(map(self.state.get, parameters))
            self._states(parameters)
            return
        if with_graph is not None:
            raise RuntimeError(
                f"the gradient of {self._name(parameters[with_graph])} has a graph (create_graph=True), and a step cannot be differentiated: "
                "call backward() without it, or type p.grad = p.grad.detach()"
            )
        gpu = self._use_device(parameters)
        if gpu is not None:
            self._hear()
            self._report()
        elif found_inf is not None and float(found_inf) > 0:
            self._session.skip()
            self._read_progress()
            self._seen = _loss.SeenLoss()
            return
        if self._is_template:
            # The parameters may have other values now.
            self.state.clear()
            self._unit, self._is_template = None, False
        seen = self._seen
        self._notice_changes(marks)
        self._compare_ranks(parameters)
        value = self._loss_value(loss, returned, found_inf is not None)
        self._seen = _loss.SeenLoss()
        if not complete and not self._without_gradient_warned:
            self._warn_without_gradient(parameters, gradients)
        staying = self._staying()
        if staying:
            gradients = [None if p in staying else g for p, g in zip(parameters, gradients)]
        lists = None if self._sharded else _untuned.vectors_of(self.state, parameters, [name for name, _ in self._vectors])
        if lists is None:
            lists = self._lists(parameters, self._states(parameters))
        decay = self._configure(parameters, ids)
        try:
            if gpu is not None:
                amp = found_inf, grad_scale
                self._call(parameters, gradients, lists, lambda *of: self._start_on_gpu(gpu, of, value, rate, decay, amp))
            else:
                factor = None if grad_scale is None else 1.0 / float(grad_scale)
                self._last = self._call(parameters, gradients, lists, lambda *of: self._make(of, value, rate, decay, factor))
                self._refusals = 0
        except _untuned.Refused as refusal:
            kind, text = refusal.args
            if kind == "past-horizon":
                self._seen = seen
                raise self._past_horizon() from None
            self._refuse(text, parameters, gradients)
            return
        finally:
            # Ctrl-C comes when the step is made.
            if gpu is None:
                self._read_progress()
        changed = parameters if complete and not staying else [p for p, g in zip(parameters, gradients) if g is not None]
        _increment_versions(changed)
        self._note_rate()
        warning = self._progress[2]
        if warning is not None and self._method_warned is None:
            self._method_warned = warning
            warnings.warn(f"{self._session.name}: {warning}", UntunedWarning, stacklevel=4)

    def _note_rate(self) -> None:
        """Shows the rate of the last step where trainers look for it."""
        largest = max(float(group["lr"]) for group in self.param_groups)
        for group in self.param_groups:
            group["d"] = self._last[0] / largest if largest else 0.0

    def _make(self, lists: Any, loss: Any, rate: float, decay: float, grad_factor: float | None) -> tuple[float, float]:
        gather = self._ranks.loss_and_sums if self._sharded else None
        parameters, gradients, state = lists
        return self._session.step(parameters, gradients, state, loss, rate, decay, torch.get_num_threads(), grad_factor, gather)

    def _start_on_gpu(self, gpu: _cuda.Gpu, lists: Any, loss: Any, rate: float, decay: float, amp: Any) -> None:
        gather = self._ranks.gather_on_device if self._sharded else None
        _cuda.advance(self._session, gpu, lists, loss, rate, decay, amp, gather)

    def _call(
        self,
        parameters: list[torch.Tensor],
        gradients: list[torch.Tensor | None],
        lists: list[list[torch.Tensor]],
        make: Callable[..., Any],
    ) -> Any:
        """Makes a step with what this rank has of the tensors."""
        here = parameters
        if self._sharded:
            here = list(map(local, parameters))
            gradients = [g if g is None else self._shard_like(p, g) for p, g in zip(parameters, gradients)]
        try:
            return make(here, gradients, lists)
        except _untuned.TensorMismatch as mismatch:
            if mismatch.args[0] != -1:
                raise self._explain(mismatch, parameters) from None
        # Gradients may have another layout or type than their parameters. That is rare: they are copied then.
        gradients = [g if g is None else self._laid_out(p, h, g) for p, h, g in zip(parameters, here, gradients)]
        try:
            return make(here, gradients, lists)
        except _untuned.TensorMismatch as mismatch:
            raise self._explain(mismatch, parameters) from None

    def _shard_like(self, parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        try:
            return like(parameter, gradient)
        except RuntimeError as error:
            raise RuntimeError(f"the gradient of {self._name(parameter)}: {error}") from None

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

    def _explain(self, mismatch: Exception, parameters: list[torch.Tensor]) -> Exception:
        vector, index, what, text = mismatch.args
        parameter = parameters[index]
        role = {-3: "", -2: "", -1: "the gradient of "}.get(vector, f"the state {self._vectors[max(vector, 0)][0]!r} of ")
        name = f"{role}{self._name(parameter)}"
        if what == "overlap":
            return RuntimeError(f"{name} shares memory with another tensor: give each tensor once, and no views of it")
        if what == "device":
            where = "neither on the CPU nor on an NVIDIA GPU" if vector == -2 else "not on the device of the parameters"
            return RuntimeError(f"{name} is {where}: put all on one device")
        if vector >= 0:
            return RuntimeError(f"{name} does not fit the parameter any more: {text}. Make the optimizer after you change the model")
        return RuntimeError(f"{name} cannot be used: {text}")

    def _loss_value(self, loss: Any, returned: Any, scaling: bool) -> torch.Tensor | float | None:
        """The loss that belongs to the gradients: a number, or a tensor on the GPU that makes the step."""
        seen, needs = self._seen, self._session.needs_loss
        how = "call loss.backward(), or type optimizer.step(loss), or optimizer.step(closure)"
        if loss is None and not seen:
            loss = returned
        if loss is not None:
            if isinstance(loss, torch.Tensor) and loss.numel() != 1:
                raise ValueError(f"the loss has the shape {tuple(loss.shape)}; a single number is needed, such as loss.mean()")
            try:
                value = self._read_loss(loss)
            except (TypeError, ValueError):
                raise TypeError(f"the loss must be a number or a tensor, and it is {type(loss).__name__}: {how}") from None
        elif not seen:
            if not needs:
                return self._mean_loss(None)
            raise RuntimeError(
                f"{CLASSES[self._session.name]} needs the loss, and no loss was seen since the last step: {how}"
            )
        elif seen.problem is not None:
            if not needs:
                return self._mean_loss(None)
            raise RuntimeError(f"{seen.problem}, which is no loss: type optimizer.step(loss) with the number that was differentiated")
        else:
            if scaling and needs and seen.scaled != {True}:
                raise RuntimeError(
                    "the loss changed after GradScaler.scale(): call scaler.scale(loss).backward(), or type "
                    "scaler.step(optimizer, loss=loss)"
                )
            if needs and seen.may_lack_some and not self._lacking_warned:
                self._lacking_warned = True
                warnings.warn(
                    "a backward pass changed no gradient here. If FSDP2 held it back (set_requires_gradient_sync(False)), the loss of that pass "
                    "is missing: type optimizer.step(loss) with the sum of the losses",
                    UntunedWarning,
                    stacklevel=5,
                )
            value = self._read_loss(seen.sum)
        return self._mean_loss(value)

    def _read_loss(self, loss: Any) -> torch.Tensor | float:
        """A loss as a step takes it. It is not read where it is on the GPU that makes the step."""
        if self._gpu is not None and isinstance(loss, torch.Tensor) and loss.device == self._gpu.device:
            return local(loss).detach().to(torch.float64).reshape(())
        return float(loss)

    def _mean_loss(self, value: torch.Tensor | float | None) -> torch.Tensor | float | None:
        """The mean over ranks of a loss, which a rank may not know where the method does not need it."""
        if self._ranks.count() < 2:
            return value
        value = 0.0 if value is None else value
        # With shards the loss goes with the sums.
        if self._sharded:
            return value
        if self._gpu is None:
            return self._ranks.mean(value)  # type: ignore[arg-type]
        return self._ranks.mean_on_device(value)

    def _notice_changes(self, marks: bytes) -> None:
        """Warns when gradients have changed since the backward pass. These are the marks that they have now."""
        seen = self._seen
        if not seen or self._clipping_warned or not self._options["warn_clipping"] or not self._session.needs_loss:
            return
        if _loss.with_held(self, marks) != seen.marks:
            self._clipping_warned = True
            warnings.warn(
                f"gradients changed between backward() and step(), as clipping does. {CLASSES[self._session.name]} needs the gradient "
                "that belongs to the loss: turn clipping off (Hugging Face: max_grad_norm=0; Lightning: gradient_clip_val=None). "
                "warn_clipping=False silences this",
                UntunedWarning,
                stacklevel=5,
            )

    def _warn_without_gradient(self, parameters: list[torch.Tensor], gradients: list[Any]) -> None:
        self._without_gradient_warned = True
        names = [self._name(p) for p, g in zip(parameters, gradients) if g is None]
        rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
        warnings.warn(f"no gradient, so not changed: {', '.join(names[:3])}{rest} (shown once)", UntunedWarning, stacklevel=5)

    def _past_horizon(self) -> Exception:
        return RuntimeError(
            f"step {self._progress[0]}: the run was made for total_steps={self._total_steps}, and they are over. A finished run cannot be extended "
            "yet: start anew from the weights, with a new optimizer and a total_steps of its own"
        )

    def _too_many_refusals(self, text: str, in_a_row: int) -> Exception:
        return RuntimeError(f"{text}. {in_a_row} steps in a row were refused; the parameters are those of the last step that was made")

    def _refuse(self, text: str, parameters: list[torch.Tensor], gradients: list[Any]) -> None:
        self._session.skip()
        self._read_progress()
        self._refusals += 1
        self._refused_steps += 1
        pairs = ((p, g) for p, g in zip(parameters, gradients) if g is not None)
        bad = [self._name(p) for p, g in pairs if not bool(torch.isfinite(local(g)).all())]
        where = f" (not finite: the gradient of {', '.join(bad[:3])}{' and others' if len(bad) > 3 else ''})" if bad else ""
        if self._refusals >= self._options["max_refusals"]:
            raise self._too_many_refusals(text + where, self._refusals)
        warnings.warn(f"{text}{where}. The step was not made, and nothing changed", UntunedWarning, stacklevel=5)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops all gradients and their losses."""
        super().zero_grad(set_to_none)
        if not self._held.tensors():
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
        self._update_parameters()
        parameters = [] if self._is_template else [p for p in self._trained() if self.state.get(p)]
        here: list[torch.Tensor] = []
        trained: list[torch.Tensor] = []
        # Ctrl-C may come at any time from here on.
        try:
            self._evaluating = True
            if self._session.has_evaluation_point and parameters:
                with torch.no_grad():
                    here = [local(p) for p in parameters]
                    states = [self.state[p] for p in parameters]
                    lists = self._lists(parameters, states)
                trained = [p.detach().clone() for p in here]
                self._configure(parameters, b"")
                gpu = self._use_device(parameters)
                stream = 0 if gpu is None else gpu.stream()
                try:
                    self._session.write_evaluation_point(trained, lists, here, torch.get_num_threads(), stream)
                except _untuned.TensorMismatch as mismatch:
                    raise self._explain(mismatch, parameters) from None
                _increment_versions(parameters)
            yield self
        finally:
            # Ctrl-C waits until the trained point is back.
            interrupt = None
            while trained:
                try:
                    with torch.no_grad():
                        torch._foreach_copy_(here, trained)
                    trained = []
                except KeyboardInterrupt as error:
                    interrupt = error
            self._evaluating = False
            if interrupt is not None:
                raise interrupt

    # Saving

    def state_dict(self) -> dict[str, Any]:
        """Returns all that a run needs to resume to the same bits."""
        numbers = self._numbers()
        for group in self.param_groups:
            group[_KEY] = numbers
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state that `state_dict` returned.

        The method and `total_steps` must be the same. If they are not, nothing changes.
        """
        given: dict[str, Any] = {}

        def check(_: Any, saved: dict[str, Any]) -> None:
            given.update(saved, numbers=self._read_numbers(saved["param_groups"]))

        handle = self.register_load_state_dict_pre_hook(check)
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()
        # Torch casts the state to the type of the parameters, such as bf16. It must have the type that was saved.
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
        if self._ranks.process_group not in (None, False):
            warnings.warn(
                "process_group cannot be saved: the optimizer that is loaded has process_group=None, which stands for all ranks",
                UntunedWarning,
                stacklevel=2,
            )
        return self._content()

    def __deepcopy__(self, memo: dict[int, Any]) -> Optimizer:
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        other.__setstate__(copy.deepcopy(self._content(), memo))
        other._ranks = Ranks(self._ranks.process_group)
        return other

    def _content(self) -> dict[str, Any]:
        """What is pickled and copied."""
        return {
            **super().__getstate__(),
            "_numbers": self._numbers(),
            "_slots": [[(slot.name, slot.shape, slot.no_decay) for slot in slots] for slots in self._slots],
            "_no_decay_rule": self._no_decay_rule,
            "_own_lr": self._own_lr,
            "_options": self._options,
            "_process_group": False if self._ranks.process_group is False else None,
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
        self._matched = set()
        saved: Any = self._slots
        self._slots = [
            [Slot(tensor, name, no_decay, shape) for tensor, (name, shape, no_decay) in zip(group["params"], slots)]
            for group, slots in zip(self.param_groups, saved)
        ]
        self._note_shards()
        self._reset()
        _loss.listeners.add(self)


def _increment_versions(changed: list[torch.Tensor]) -> None:
    """Increments the versions of tensors that Rust has changed, so that autograd notices."""
    for tensors in [changed] if _INCREMENTS_LISTS else changed:
        torch.autograd.graph.increment_version(tensors)


def _increments_lists() -> bool:
    try:
        torch.autograd.graph.increment_version([torch.zeros(1)])
    except (RuntimeError, TypeError):
        return False
    return True


#: Older versions of torch increment one tensor at a time.
_INCREMENTS_LISTS = _increments_lists()


def _all_zero(gradients: list[Any]) -> bool:
    return not any(bool(torch.count_nonzero(local(g))) for g in gradients if g is not None)


def _own_lr(method: Method) -> Any:
    """The default of the method's own `lr`, True where it must be given, and None where it has none."""
    for parameter in method.parameters:
        if parameter.name == "lr":
            return True if parameter.required else parameter.default
    return None
