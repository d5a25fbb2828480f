"""The part that is written in Rust. It is private: its names may change."""

from typing import Any, Callable

__version__: str
#: the numbers that a step on a GPU measures, the loss in front of them
SUMS: int

class Refused(Exception): ...
class StepsNeeded(ValueError): ...
class TensorMismatch(TypeError): ...

class Session:
    def __init__(self, spec: str, total_steps: int | None, averaging: str | None) -> None: ...
    spec: str
    name: str
    vectors: list[tuple[str, bool]]
    needs_loss: bool
    needs_scales: bool
    takes_group_rates: bool
    takes_one_decay: bool
    decays_everything: bool
    default_weight_decay: float
    has_evaluation_point: bool
    steps: int
    estimate: float | None
    warning: str | None
    def configure(self, options: list[Any]) -> None: ...
    def step(
        self,
        parameters: list[Any],
        gradients: list[Any],
        state: list[list[Any]],
        loss: float | None,
        rate: float,
        weight_decay: float,
        threads: int,
        grad_factor: float | None,
        gather: Callable[[list[float]], list[float]] | None,
    ) -> tuple[float, float]: ...
    def use_gpu(self, ordinal: int, refused: int, in_a_row: int) -> None: ...
    def leave_gpu(self) -> None: ...
    def measure(
        self,
        parameters: list[Any],
        gradients: list[Any],
        state: list[list[Any]],
        loss: float | None,
        loss_address: int,
        rate: float,
        weight_decay: float,
        found_infinite: int,
        grad_scale: int,
        stream: int,
        sums: int,
    ) -> None: ...
    def change(self, sums: int) -> None: ...
    def progress(
        self,
    ) -> (
        tuple[tuple[float, float] | None, int, float | None, str | None, int, int, list[tuple[str, str, int]]] | None
    ): ...
    def settle(self) -> None: ...
    def squares(self, parameters: list[Any], threads: int, stream: int, sums: int) -> list[float]: ...
    def skip(self) -> None: ...
    def write_evaluation_point(
        self, parameters: list[Any], state: list[list[Any]], to: list[Any], threads: int, stream: int
    ) -> None: ...
    def save(self) -> str: ...
    def load(self, text: str, refused: int, in_a_row: int) -> None: ...

class Reference:
    def __init__(
        self,
        spec: str,
        total_steps: int | None,
        x0: list[float],
        tensors: list[tuple[int, bool, float]],
        averaging: str | None,
    ) -> None: ...
    x: list[float]
    evaluation_point: list[float]
    def step(self, loss: float, gradient: list[float], rate: float, weight_decay: float) -> float: ...

def catalog() -> list[dict[str, Any]]: ...
def parse(spec: str) -> tuple[str, dict[str, Any], str]: ...
def scales(tensors: list[tuple[bool, int, float]]) -> list[float]: ...
def unplanned(spec: str, total_steps: int | None, averaging: str | None, steps: int) -> str | None: ...
def compile_kernels(
    spec: str, total_steps: int | None, averaging: str | None, architecture: str
) -> list[str] | None: ...
def look(
    groups: list[list[Any]], references: list[list[Any]]
) -> tuple[list[Any], list[Any], bytes, bytes, int | None, bool] | None: ...
def vectors_of(state: Any, parameters: list[Any], names: list[str]) -> list[list[Any]] | None: ...
def panics(threads: int) -> None: ...
def thread_pool() -> str: ...
def is_dense(tensor: Any) -> bool: ...
def minimize(
    function: Callable[[bytes], tuple[float, bytes]],
    x0: bytes,
    spec: str,
    steps: int,
    f_star: float | None,
    averaging: str | None,
) -> dict[str, Any]: ...
