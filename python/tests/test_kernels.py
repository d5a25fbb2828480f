"""What a GPU is given, as far as it can be tested without one."""

from __future__ import annotations

import pytest
from conftest import ALL, spec

from untuned import _cuda, _untuned

#: Choices that change which passes a method makes.
FORMS = [
    "adaptive-polyak:variant=epochs", "d-adapt-adam:decouple=yes", "mechanic:base=sgd-momentum", "mechanic:form=optax", "polyak-adam:cap=yes",
    "polyak-adam:average=0.9999", "prodigy:decouple=no", "schedule-free-adamw:warmup_steps=10", "sgd-momentum:momentum=0",
]  # fmt: skip


@pytest.mark.parametrize("averaging", [None, "uniform"])
@pytest.mark.parametrize("method", [spec(name) for name in ALL] + FORMS)
def test_every_pass_is_planned(method: str, averaging: str | None) -> None:
    """Steps with sums of all sizes, signs and none make only passes that a GPU was given kernels for."""
    assert _untuned.unplanned(method, 30_000, averaging, 31_000) is None


@pytest.mark.parametrize(("architecture", "methods"), [("sm_80", ["polyak-adam", "prodigy"]), ("sm_90a", ALL)])
def test_the_kernels_compile(architecture: str, methods: list[str]) -> None:
    _cuda._load_compiler()
    for name in methods:
        found = _untuned.compile_kernels(spec(name), 1000, "uniform", architecture)
        if found is None:
            pytest.skip("there is no NVRTC: pip install nvidia-cuda-nvrtc")
        # Each for four types of parameters; the average has two.
        assert len(found) % 4 == 0 and len(set(found)) >= 12, name
