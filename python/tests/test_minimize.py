"""`minimize` for functions of numpy."""

from __future__ import annotations

import numpy as np
import pytest

import untuned


def bowl(x):
    weights = np.array([1.0, 10.0])
    return (weights * x**2).sum(), 2 * weights * x


def test_a_run():
    found = untuned.minimize(bowl, [3.0, -2.0], "inexact-polyak", steps=400)
    assert found.outcome == "finished" and found.average_x is None and found.warning is None
    assert found.losses.shape == (401,) and found.rates.shape == (400,) and found.grad_norms.shape == (401,)
    assert found.losses[0] == 49.0 and found.loss == found.losses[-1] == bowl(found.x)[0]
    assert found.best_loss == found.losses.min() == bowl(found.best_x)[0] and found.best_loss < 0.1
    assert found.losses[found.best_step] == found.best_loss
    assert len(repr(found)) < 400


def test_shapes_and_options():
    found = untuned.minimize(lambda x: ((x**2).sum(), 2 * x), np.ones((2, 3)), "polyak", steps=30, f_star=0.0, averaging="uniform")
    assert found.x.shape == found.best_x.shape == found.average_x.shape == (2, 3)
    assert found.average_loss == pytest.approx((found.average_x**2).sum())
    none = untuned.minimize(bowl, [1.0, 1.0], steps=0)
    assert none.losses.tolist() == [11.0] and none.x.tolist() == [1.0, 1.0]
    assert untuned.minimize(bowl, [0.0, 0.0], "gd:lr=0.1", steps=3).outcome == "stationary"
    scalar = untuned.minimize(lambda x: (float(x) ** 2, 2 * x), 3.0, steps=100)
    assert scalar.x.shape == () and scalar.best_loss < 1e-3


def test_outcomes():
    assert untuned.minimize(lambda x: (float("nan"), x), [1.0], steps=5).outcome == "diverged"
    assert untuned.minimize(lambda x: (float(x[0]), np.array([np.inf])), [1.0], steps=5).outcome == "diverged"


@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt()])
def test_an_exception_comes_out_as_it_is(error):
    calls = []

    def f(x):
        calls.append(x)
        if len(calls) == 4:
            raise error
        return bowl(x)

    with pytest.raises(type(error)) as caught:
        untuned.minimize(f, [3.0, -2.0], steps=100)
    assert caught.value is error and len(calls) == 4
    assert "in f" in "".join(str(entry) for entry in caught.traceback) or caught.traceback[-1].name == "f"


def test_errors():
    with pytest.raises(TypeError, match="two things: the value and the gradient"):
        untuned.minimize(lambda x: 1.0, [1.0], steps=5)
    with pytest.raises(ValueError, match=r"shape \(1,\), and x has \(2,\)"):
        untuned.minimize(lambda x: (1.0, x[:1]), [1.0, 2.0], steps=5)
    with pytest.raises(ValueError, match="did you mean"):
        untuned.minimize(bowl, [1.0, 2.0], "polyak-adm", steps=5)
    with pytest.raises(ValueError, match="must be finite"):
        untuned.minimize(bowl, [1.0, np.nan], steps=5)
    for steps in (-1, 2.5, True):
        with pytest.raises(ValueError, match="whole number"):
            untuned.minimize(bowl, [1.0, 2.0], steps=steps)


def test_the_function_may_change_what_it_gets():
    def f(x):
        value, gradient = bowl(x.copy())
        x[:] = np.nan
        return value, gradient

    assert untuned.minimize(f, [3.0, -2.0], steps=100).losses.tolist() == untuned.minimize(bowl, [3.0, -2.0], steps=100).losses.tolist()
