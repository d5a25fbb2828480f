"""Training without tuning for PyTorch: the step size and the clipping threshold set themselves."""
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

class Optimizer(torch.optim.Optimizer):
    def __init__(
        self,
        params: Any,
        method: str = 'polyak-adam',
        total_steps: int | None = None,
        *,
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...
    @property
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

class GD(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lr: float,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class ClippedGD(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lr: float,
        threshold: float,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class Polyak(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        f_star: float | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class PolyakBound(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lower_bound: float = 0.0,
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class InexactPolyak(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lower_bound: float = 0.0,
        extend: Literal['never', 'keep', 'grow'] = 'never',
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class DecSPS(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        c0: float = 1.0,
        gamma: float = 10.0,
        lower_bound: float = 0.0,
        grad_shift: float = 0.0,
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class AdaSPS(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        c_scale: float = 1.0,
        c_p: float | None = None,
        lower_bound: float = 0.0,
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class DoG(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        eps_rel: float = 1e-06,
        eps: float = 1e-08,
        eps_each: bool = False,
        lr: float = 1.0,
        first_step: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class AnytimePolyak(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lower_bound: float = 0.0,
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class AdaptivePolyak(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lower_bound: float = 0.0,
        variant: Literal['continuous', 'epochs'] = 'continuous',
        epochs: int | None = None,
        restart: Literal['origin', 'best'] = 'origin',
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class LevelPolyak(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lower_bound: float = 0.0,
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class SPSMax(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        c: float = 0.5,
        cap: Literal['constant', 'smooth'] = 'constant',
        max_step: float = ...,
        first_step: float = 1.0,
        gamma: float = 2.0,
        epoch: int = 500,
        eps: float = 1e-08,
        lower_bound: float = 0.0,
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class AliG(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        max_lr: float = ...,
        eps: float = 1e-05,
        lower_bound: float = 0.0,
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class DoWG(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lr: float = 1.0,
        r2: float | None = None,
        eps: float = 0.0001,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class SGDMomentum(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lr: float = 0.001,
        momentum: float = 0.9,
        dampening: float = 0.0,
        nesterov: bool = False,
        decouple: bool = False,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class Adagrad(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lr: float = 0.01,
        lr_decay: float = 0.0,
        initial_accumulator: float = 0.0,
        eps: float = 1e-10,
        eps_inside: bool = False,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class AdamW(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lr: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class Momo(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lr: float = 1.0,
        beta: float = 0.9,
        lower_bound: float = 0.0,
        bias_correction: bool = False,
        use_fstar: bool = False,
        decay_first: bool = False,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class MomoAdam(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lr: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        lower_bound: float = 0.0,
        use_fstar: bool = False,
        divide: bool = True,
        decay_first: bool = False,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class COCOB(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        alpha: float = 100.0,
        eps: float = 1e-08,
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class DAdaptSGD(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lr: float = 1.0,
        momentum: float = 0.0,
        d0: float = 1e-06,
        growth_rate: float = ...,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class DAdaptAdam(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lr: float = 1.0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        decouple: bool = False,
        bias_correction: bool = False,
        d0: float = 1e-06,
        growth_rate: float = ...,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class Prodigy(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lr: float = 1.0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        beta3: float | None = None,
        eps: float = 1e-08,
        decouple: bool = True,
        bias_correction: bool = False,
        safeguard_warmup: bool = False,
        d0: float = 1e-06,
        d_coef: float = 1.0,
        growth_rate: float = ...,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class ScheduleFreeSGD(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lr: float = 1.0,
        momentum: float = 0.9,
        warmup_steps: int = 0,
        late_warmup: bool = False,
        r: float = 0.0,
        weight_lr_power: float = 2.0,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class ScheduleFreeAdamW(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lr: float = 0.0025,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        warmup_steps: int = 0,
        late_warmup: bool = False,
        r: float = 0.0,
        weight_lr_power: float = 2.0,
        bias_correction: Literal['moment', 'rate'] = 'moment',
        decay_at: Literal['y', 'z'] = 'y',
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class Mechanic(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        base: Literal['adamw', 'sgd-momentum'] = 'adamw',
        lr: float = 1.0,
        momentum: float = 0.9,
        beta1: float = 0.9,
        beta2: float = 0.999,
        base_eps: float = 1e-08,
        form: Literal['torch', 'optax'] = 'torch',
        s_init: float | None = None,
        s_decay: float = 0.01,
        betas: int = 6,
        eps: float = 1e-08,
        store_delta: bool = False,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...

class PolyakAdam(Optimizer):
    def __init__(
        self,
        params: Any,
        total_steps: int | None = None,
        *,
        lower_bound: float = 0.0,
        factor: float = 0.5,
        dog: float = 1.5,
        average: float = 0.99,
        beta1: float = 0.9,
        beta2: float = 0.99,
        eps: float = 1e-08,
        cap: bool = False,
        decay: Literal['linear', 'none'] = 'linear',
        lr: float | None = None,
        weight_decay: float | None = None,
        no_decay: str | Iterable[str] | Callable[[str, torch.Tensor], bool] = (),
        averaging: str | None = None,
        max_refusals: int = 10,
        warn_clipping: bool = True,
        process_group: Any = None,
    ) -> None: ...
