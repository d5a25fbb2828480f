"""Steps on an NVIDIA GPU. They do not wait for it: what a step decides is decided when the GPU comes there."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import glob
import importlib
import weakref
from typing import Any

import torch

from . import _untuned

#: The optimizers that make steps on GPUs.
at_work: weakref.WeakSet[Any] = weakref.WeakSet()

#: The sums of optimizers with steps in CUDA graphs, which may be played again as long as the process lives.
_recorded: list[torch.Tensor] = []


class Gpu:
    """What an optimizer needs of its GPU."""

    def __init__(self, device: torch.device) -> None:
        _load_compiler()
        self.device = device
        self.index: int = device.index
        self.sums = torch.zeros(_untuned.SUMS, dtype=torch.float64, device=device)

    def stream(self) -> int:
        """The current stream."""
        return torch._C._cuda_getCurrentRawStream(self.index)

    def keep_if_recording(self) -> None:
        if torch.cuda.is_current_stream_capturing() and not any(kept is self.sums for kept in _recorded):
            _recorded.append(self.sums)

    def address(self, scalar: Any) -> int:
        """Where an f32 of AMP is, and 0 where there is none."""
        if scalar is None:
            return 0
        if scalar.device != self.device or scalar.dtype != torch.float32:
            raise RuntimeError(f"grad_scale and found_inf must be torch.float32 on {self.device}, not {scalar.dtype} on {scalar.device}")
        return scalar.data_ptr()  # type: ignore[no-any-return]


@atexit.register
def _end() -> None:
    """Waits for the last steps, before the driver's memory goes."""
    for optimizer in list(at_work):
        with contextlib.suppress(Exception):
            optimizer._session.settle()


def _load_compiler() -> None:
    """Opens NVRTC where torch's wheels have it, so that Rust finds it by its name."""
    with contextlib.suppress(Exception):
        importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib("nvrtc")
        return
    # Older versions of torch come without it.
    major = (torch.version.cuda or "").split(".")[0]
    with contextlib.suppress(ImportError, OSError):
        for root in importlib.import_module("nvidia").__path__:
            for path in glob.glob(f"{root}/*/lib/libnvrtc.so.{major}"):
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
                return


def advance(
    session: _untuned.Session,
    gpu: Gpu,
    lists: tuple[list[torch.Tensor], list[Any], list[list[torch.Tensor]]],
    loss: torch.Tensor | float | None,
    rate: float,
    decay: float,
    amp: tuple[Any, Any],
    gather: Any,
) -> None:
    """Gives a step to the GPU. `gather` adds up the sums of ranks that have parts of the tensors."""
    found_inf, grad_scale = (gpu.address(scalar) for scalar in amp)
    gpu.keep_if_recording()
    value, address = (None, loss.data_ptr()) if isinstance(loss, torch.Tensor) else (loss, 0)
    sums = gpu.sums.data_ptr()
    session.measure(*lists, value, address, rate, decay, found_inf, grad_scale, gpu.stream(), sums)
    if gather is not None:
        gather(gpu.sums)
    session.change(sums)
