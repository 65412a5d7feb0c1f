"""The functions of the kernels: errors in units in the last place, and what NaN, infinities and zeros become."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

from ox.kernels import Library, address

Function = Callable[[float], float]

# The float64 function and the largest error in units in the last place of float32.
FUNCTIONS: dict[str, tuple[Function, float]] = {
    "exp": (lambda x: math.exp(x) if x < 700 else math.inf, 1.5),
    "log": (lambda x: math.log(x), 1.5),
    "erf": (math.erf, 1.5),
    "tanh": (math.tanh, 2.0),
    "sigmoid": (lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0, 3.0),
    "softplus": (lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))), 2.5),
}
NORMAL = np.finfo(np.float32).tiny


def run(library: Library, name: str, x: Any, *saved: Any) -> Any:
    """The kernel of one input, or of a gradient (1) and what was saved."""
    y = np.empty_like(x)
    getattr(library, name)(x.size, *[address(a) for a in (*saved, x)], address(y))
    return y


def numbers(name: str) -> Any:
    random = np.random.default_rng(0)
    near = random.uniform(-12, 12, 20_000)
    small = 10.0 ** random.uniform(-30, 0, 5_000) * random.choice([-1, 1], 5_000)
    far = random.uniform(-80, 80, 5_000)
    x = np.concatenate([near, small, far]).astype(np.float32)
    return np.abs(x) if name == "log" else x


@rows("name", FUNCTIONS)
def test_errors_are_a_few_units_in_the_last_place(name: str, library: Library) -> None:
    exact, allowed = FUNCTIONS[name]
    x = numbers(name)
    y = run(library, f"ox_{name}_forward", x)
    expected = np.array([exact(float(value)) for value in x])
    unit = np.spacing(np.maximum(np.abs(expected), NORMAL).astype(np.float32)).astype(np.float64)
    worst = (np.abs(y - expected) / unit).max()
    assert worst <= allowed


def test_exp_of_what_is_below_0_may_be_0_where_it_is_tiny(library: Library) -> None:
    """What softmax computes of x - max(x): as exact as exp, and 0 in place of numbers below the normal ones."""
    x = np.concatenate([-np.abs(numbers("exp")), np.float32([0, -87, -87.5, -100, -1e30, -np.inf])])
    weights = np.empty((x.size, 2), np.float32)
    rows = np.stack([np.zeros_like(x), x], axis=1)
    library.ox_softmax(x.size, address(rows), address(weights), 2)
    exact = np.exp(x.astype(np.float64))
    exact /= 1 + exact
    unit = np.spacing(np.maximum(exact, NORMAL).astype(np.float32)).astype(np.float64)
    assert (np.abs(weights[:, 1] - exact) <= np.where(x < -87, NORMAL, 3 * unit)).all()
    assert weights[-1, 1] == 0 and weights[0].sum() == pytest.approx(1)


def test_gelu_far_from_zero(library: Library) -> None:
    """Below 0 it is the tail of the normal distribution, which 1 + erf loses; exp(-x² / 2) has the error of x²."""
    x = numbers("gelu")
    x = x[np.abs(x) < 12]
    exact = [float(value) * math.erfc(-float(value) / math.sqrt(2)) / 2 for value in x]
    error = np.abs(run(library, "ox_gelu_forward", x) / np.array(exact) - 1)
    assert (error <= 6e-7 + 2.4e-7 * x.astype(np.float64) ** 2).all()
    slopes = run(library, "ox_gelu_backward", x, np.ones_like(x))
    along = x.astype(np.float64)
    normal = np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in along])
    np.testing.assert_allclose(slopes, normal + along * np.exp(-along * along / 2) / math.sqrt(2 * math.pi), atol=4e-7)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
AT_SPECIAL = {
    "exp": [np.nan, np.inf, 0.0, 1.0, 1.0],
    "log": [np.nan, np.inf, np.nan, -np.inf, -np.inf],
    "erf": [np.nan, 1.0, -1.0, 0.0, -0.0],
    "tanh": [np.nan, 1.0, -1.0, 0.0, -0.0],
    "sigmoid": [np.nan, 1.0, 0.0, 0.5, 0.5],
    "softplus": [np.nan, np.inf, 0.0, math.log(2), math.log(2)],
    "relu": [np.nan, np.inf, 0.0, 0.0, -0.0],
}


@rows("name", AT_SPECIAL)
def test_values_that_are_no_usual_numbers(name: str, library: Library) -> None:
    y = run(library, f"ox_{name}_forward", SPECIAL)
    expected = np.array(AT_SPECIAL[name], np.float32)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    if name != "relu":  # max(-0, 0) may be either zero
        assert (np.signbit(y) == np.signbit(expected))[~np.isnan(expected)].all()


@pytest.mark.parametrize("name", ["gelu", "tanh_gelu", "silu"])
def test_slopes_have_limits(name: str, library: Library) -> None:
    """1 and 0 at the infinities, where a naive formula gives inf * 0; NaN stays."""
    x = np.array([np.inf, -np.inf, 60.0, -60.0, np.nan], np.float32)
    slope = run(library, f"ox_{name}_backward", x, np.ones(5, np.float32))
    np.testing.assert_allclose(slope[:4], [1, 0, 1, 0], atol=1e-6)
    assert np.isnan(slope[4])


def test_subnormal_numbers(library: Library) -> None:
    x = np.array([1e-45, 1e-40, 1.1754942e-38], np.float32)
    np.testing.assert_allclose(run(library, "ox_log_forward", x), np.log(x.astype(np.float64)), rtol=1e-6)
    assert run(library, "ox_tanh_forward", x).tolist() == x.tolist()
    assert run(library, "ox_exp_forward", np.array([-103.0], np.float32))[0] > 0
