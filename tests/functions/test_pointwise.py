"""Functions element by element, against NumPy's and Python's own, and by what must hold between them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import devices

R = np.random.default_rng(6)
X = R.normal(size=(3, 4)) * 2
V = R.uniform(0.05, 0.95, size=(3, 4))
ENDS = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -2.5])

NUMPY = """sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arctanh exp exp2 expm1 log log2 log10 log1p sqrt
deg2rad rad2deg sinc floor ceil trunc isnan isinf isfinite isposinf isneginf signbit"""
PAIRS = """atan2=arctan2 hypot logaddexp logaddexp2 copysign fmod fmax fmin maximum minimum remainder float_power
heaviside greater less_equal not_equal"""
WHOLE = "gcd lcm bitwise_or bitwise_xor bitwise_left_shift=left_shift bitwise_right_shift=right_shift remainder fmod"


@rows("name", NUMPY.split())
def test_like_numpy(name: str) -> None:
    for x in (V, ENDS[3:]):
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(x)
        np.testing.assert_allclose(getattr(ox, name)(ox.tensor(x)).numpy(), expected, rtol=1e-13, atol=1e-300)


@rows("name", PAIRS.split())
def test_pairs_like_numpy(name: str) -> None:
    ours, _, theirs = name.partition("=")
    finite = ours in ("remainder", "fmod", "float_power", "heaviside")  # elsewhere PyTorch differs from NumPy
    for a, b in ((X, V), (V, X[0])) if finite else ((X, X[0]), (X, V), (ENDS[:, None], ENDS)):
        a = np.abs(a) if ours == "float_power" else a
        with np.errstate(all="ignore"):
            expected = getattr(np, theirs or ours)(a, b)
        np.testing.assert_allclose(getattr(ox, ours)(ox.tensor(a), ox.tensor(b)).numpy(), expected, rtol=1e-13)


@rows("name", WHOLE.split())
@rows("dtype", [np.int64, np.int32, np.int8, np.uint8])
def test_whole_numbers_like_numpy(name: str, dtype: type) -> None:
    ours, _, theirs = name.partition("=")
    a = np.array([12, 100, 7, 3, 1], dtype)
    b = np.array([2, 3, 5, 7, 1], dtype)
    for left in (a,) if dtype is np.uint8 else (a, -a):
        got = getattr(ox, ours)(ox.tensor(left), ox.tensor(b)).numpy()
        np.testing.assert_array_equal(got, getattr(np, theirs or ours)(left, b).astype(dtype))
        assert got.dtype == dtype


def test_shifts_to_the_end() -> None:
    x = ox.tensor([-9, 9, -1, 2**62])
    assert (x >> 62).tolist() == [-1, 0, -1, 1]
    assert (x >> ox.tensor(63)).tolist() == [-1, 0, -1, 0]
    assert (ox.tensor([1, 3]) << 62).tolist() == [2**62, 3 * 2**62 - 2**64]


@rows("x", [0.3, 1.0, 2.5, 7.9, 8.1, 30.0, 171.0, -0.5, -3.7])
def test_gamma_like_python(x: float) -> None:
    assert abs(ox.lgamma(ox.tensor(x, dtype=ox.float64)).item() - math.lgamma(x)) < 1e-12 * max(1, abs(math.lgamma(x)))


def test_digamma_and_its_derivatives() -> None:
    """Known values: -gamma at 1, pi²/6, -2 zeta(3); and the recurrence psi(x + 1) = psi(x) + 1/x."""
    one = ox.tensor(1.0, dtype=ox.float64)
    assert abs(ox.digamma(one).item() + 0.5772156649015329) < 1e-14
    assert abs(ox.polygamma(1, one).item() - math.pi**2 / 6) < 1e-14
    assert abs(ox.polygamma(2, one).item() + 2 * 1.2020569031595942) < 1e-13
    x = ox.tensor(V)
    np.testing.assert_allclose(ox.digamma(x + 1).numpy(), (ox.digamma(x) + 1 / x).numpy(), rtol=1e-11)


@rows("x", [-5.0, -0.4, 0.0, 0.4, 0.5, 2.0, 3.9, 4.1, 10.0, 26.0])
def test_error_functions_like_python(x: float) -> None:
    got = ox.tensor(x, dtype=ox.float64)
    assert abs(ox.erfc(got).item() - math.erfc(x)) <= 2e-15 * abs(math.erfc(x))
    assert abs(ox.erf(got).item() - math.erf(x)) <= 2e-15
    scaled = ox.special.erfcx(got).item()
    assert abs(scaled - math.exp(min(x * x, 600)) * math.erfc(x)) < 1e-12 * scaled or x > 20
    assert abs(ox.special.ndtr(got).item() - 0.5 * math.erfc(-x / math.sqrt(2))) < 1e-15


def test_inverses() -> None:
    x = ox.tensor(V)
    for there, back in (
        (ox.erfinv, ox.erf), (ox.logit, ox.sigmoid), (ox.special.ndtri, ox.special.ndtr), (ox.asin, ox.sin),
        (ox.atanh, ox.tanh), (ox.expm1, ox.log1p), (ox.log2, ox.exp2), (ox.deg2rad, ox.rad2deg),
    ):  # fmt: skip
        np.testing.assert_allclose(back(there(x)).numpy(), V, rtol=1e-13)
    np.testing.assert_allclose(ox.special.log_ndtr(ox.tensor(X)).exp().numpy(), ox.special.ndtr(ox.tensor(X)).numpy())


def test_round_to_decimals_and_halves() -> None:
    assert ox.tensor([0.5, 1.5, -2.5]).round().tolist() == [0.0, 2.0, -2.0]
    np.testing.assert_allclose(ox.tensor([2.345, -1.05]).round(decimals=1).numpy(), [2.3, -1.0], rtol=1e-6)
    assert ox.round(ox.tensor([1234.0, -56.0]), decimals=-2).tolist() == [1200.0, -100.0]


def test_what_replaces_values() -> None:
    ends = ox.tensor(ENDS)
    assert ox.nan_to_num(ends, 1.0, 2.0, 3.0).tolist() == [2.0, 3.0, 1.0, 0.0, -0.0, 1.0, -2.5]
    assert ox.nan_to_num(ox.tensor([np.inf], dtype=ox.float32)).item() == float(np.finfo(np.float32).max)
    assert ends.clamp_min(0).nan_to_num().amin().item() == 0
    assert ox.xlogy(ox.tensor([0.0, 0.0]), ox.tensor([0.0, np.inf])).tolist() == [0.0, 0.0]
    assert ox.lerp(ox.tensor([1.0]), ox.tensor([3.0]), 0.25).item() == 1.5
    assert ox.addcmul(ox.tensor([1.0]), ox.tensor([2.0]), ox.tensor([3.0]), value=2).item() == 13
    assert ox.addcdiv(ox.tensor([1.0]), ox.tensor([3.0]), ox.tensor([2.0])).item() == 2.5


def test_integers_become_floats() -> None:
    for name in ("sin", "exp2", "log1p", "erfc", "lgamma", "sinc", "rsqrt", "deg2rad", "logit"):
        assert getattr(ox, name)(ox.tensor([1, 2])).dtype == ox.float32
    assert ox.tensor([1, 2]).float_power(2).dtype == ox.float64
    assert ox.erfc(ox.tensor([0.5], dtype=ox.bfloat16)).dtype == ox.bfloat16


def test_in_place() -> None:
    x = ox.tensor([0.25, 4.0])
    before = x.numpy()
    assert x.sqrt_().mul_(2).add_(1) is x
    assert before.tolist() == [2.0, 5.0]  # the memory itself
    with pytest.raises(ox.OxError, match="does not go into int64"):
        ox.tensor([1, 2]).sin_()


@rows(
    "call",
    [
        lambda: ox.sin("a"), lambda: ox.sin(1.0), lambda: ox.hypot(ox.tensor([1]), ox.tensor([2])),
        lambda: ox.gcd(ox.tensor([1.0]), ox.tensor([2.0])), lambda: ox.frac(ox.tensor([1])),
        lambda: ox.lerp(ox.tensor([1.0]), ox.tensor([1.0], dtype=ox.float64), 0.5),
        lambda: ox.polygamma(-1, ox.ones(2)),
        lambda: ox.fmod(ox.tensor([1]), 0), lambda: ox.tensor([1.0]) << 1,
        lambda: ox.floor(ox.tensor([True])), lambda: ox.is_nonzero(ox.ones(2)), lambda: ox.finfo(ox.int8),
        lambda: ox.iinfo(ox.float32), lambda: ox.atan2(ox.ones(2), ox.ones(3)),
    ],
)  # fmt: skip
def test_refusals(call: object) -> None:
    with pytest.raises(ox.OxError):
        call()  # type: ignore[operator]


def test_types_that_meet() -> None:
    assert ox.promote_types(ox.int64, ox.float16) == ox.float16
    assert ox.promote_types(ox.uint8, ox.int8) == ox.int16
    assert ox.result_type(ox.ones(2, dtype=ox.int32), ox.ones((), dtype=ox.int64)) == ox.int32
    assert ox.result_type(ox.ones(2, dtype=ox.int32), 1.5) == ox.float32
    assert ox.result_type(True, 2) == ox.int64
    assert ox.can_cast(ox.int64, ox.float16) and not ox.can_cast(ox.float16, ox.int64) and ox.can_cast(ox.bool, ox.int8)
    assert ox.is_tensor(ox.ones(1)) and not ox.is_tensor(np.ones(1))
    assert ox.numel(ox.ones(2, 3)) == 6 and ox.is_floating_point(ox.ones(1)) and not ox.is_complex(ox.ones(1))
    assert ox.finfo(ox.float16).max == 65504 and ox.finfo(ox.bfloat16).bits == 16 and ox.iinfo(ox.uint8).max == 255
    assert "float32" in repr(ox.finfo()) and "int8" in repr(ox.iinfo(ox.int8))


@rows("exponent", [2, 3, 4])
@rows("dtype", [np.float16, np.float32, np.float64])
def test_small_whole_powers_are_products(exponent: int, dtype: Any) -> None:
    x = np.random.default_rng(0).standard_normal(1000).astype(dtype)
    x[:6] = [np.nan, np.inf, -np.inf, -0.0, 1e-4, 3e4]
    with np.errstate(over="ignore", under="ignore"):
        got = (ox.tensor(x) ** exponent).numpy()
        exact = (x.astype(np.float64) ** exponent).astype(dtype)
    assert got.dtype == dtype
    np.testing.assert_array_equal(np.signbit(got)[1:], np.signbit(exact)[1:])
    np.testing.assert_allclose(got, exact, rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).tiny)


@rows("executor", [None, "numpy", "onnxruntime"])
@rows("approximate", ["none", "tanh"])
def test_gelu_of_the_largest_numbers(executor: str | None, approximate: str) -> None:
    """Twice such a number is infinite."""
    x = np.array([3e38, -3e38, 1e30, 1.0] * 100, np.float32)
    with devices.forced(executor):
        y = ox.nn.functional.gelu(ox.from_numpy(x), approximate=approximate).numpy()
    assert np.array_equal(y[:3], np.array([3e38, 0, 1e30], np.float32))
