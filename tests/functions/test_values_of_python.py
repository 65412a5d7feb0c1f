"""Numbers of Python that an integer type does not have, an index of one bool, the mode of NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import ArgumentError

INTEGERS = [ox.uint8, ox.int8, ox.int16, ox.uint16, ox.int32, ox.uint32, ox.int64, ox.uint64]
MAKERS: dict[str, Callable[[Any, Any], Any]] = {
    "tensor": lambda n, dtype: ox.tensor(n, dtype=dtype),
    "in a list": lambda n, dtype: ox.tensor([[0, n], [1, 2]], dtype=dtype)[0, 1],
    "as_tensor": lambda n, dtype: ox.as_tensor(n, dtype=dtype),
    "asarray": lambda n, dtype: ox.asarray(n, dtype=dtype),
    "new_tensor": lambda n, dtype: ox.zeros(1, dtype=dtype).new_tensor(n),
    "scalar_tensor": lambda n, dtype: ox.scalar_tensor(n, dtype=dtype),
    "full": lambda n, dtype: ox.full((), n, dtype=dtype),
    "full_like": lambda n, dtype: ox.full_like(ox.zeros((), dtype=dtype), n),
    "new_full": lambda n, dtype: ox.zeros(1, dtype=dtype).new_full((), n),
    "fill_": lambda n, dtype: ox.zeros((), dtype=dtype).fill_(n),
    "assignment": lambda n, dtype: _assigned(ox.zeros(2, dtype=dtype), n),
}


def _assigned(x: Any, n: Any) -> Any:
    x[1] = n
    return x[1]


@rows("make", MAKERS.values(), ids=MAKERS)
@rows("dtype", INTEGERS, ids=str)
def test_what_does_not_fit_is_an_error(dtype: Any, make: Callable[[Any, Any], Any]) -> None:
    least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    assert make(most, dtype).item() == most and make(least, dtype).item() == least
    below = -most - 1 if least == 0 else least - 1
    for wrong in (most + 1, below):
        with pytest.raises((ArgumentError, OverflowError), match=r"does not fit|too (large|big)"):
            make(wrong, dtype)


def test_negative_numbers_count_from_the_end_of_an_unsigned_type() -> None:
    """As in PyTorch."""
    assert ox.tensor([-1, 255], dtype=ox.uint8).tolist() == [255, 255]
    with pytest.raises(ArgumentError, match="-1 does not fit uint64"):
        ox.tensor(-1, dtype=ox.uint64)


@rows("value", [300.7, math.nan, math.inf, 1e30, np.int64(300), np.float32(300)])
def test_floats_and_numpys_numbers_too(value: Any) -> None:
    with pytest.raises(ArgumentError, match="does not fit uint8"):
        ox.tensor(value, dtype=ox.uint8)


def test_arrays_and_tensors_are_converted_as_numpy_does() -> None:
    assert ox.tensor(np.array([300]), dtype=ox.uint8).tolist() == [44] == ox.tensor([300]).to(ox.uint8).tolist()
    assert ox.tensor(70000, dtype=ox.float16).isinf() and ox.tensor(2, dtype=ox.bool).item() is True


def test_one_bool_writes_all_or_nothing() -> None:
    x = ox.zeros(2, 3)
    x[ox.tensor(True)] = 5
    x[ox.tensor(False)] = 7
    assert x.tolist() == [[5] * 3] * 2
    x[ox.tensor(True)] = ox.ones(1, 2, 3)
    x[False] = 3
    assert x.tolist() == [[1] * 3] * 2
    x[True] = ox.arange(3.0)
    assert x.tolist() == [[0, 1, 2]] * 2
    w = ox.ones(3, requires_grad=True)
    y = w * 1
    y[ox.tensor(True)] = w[0] * 2
    y.sum().backward()
    assert w.grad.tolist() == [6, 0, 0]


@rows(
    ("values", "value", "index"),
    [
        ([math.nan, 1.0], math.nan, 0), ([1.0, math.nan], 1.0, 0), ([math.nan, 1.0, 1.0], 1.0, 2),
        ([1.0, math.nan, math.nan], 1.0, 0), ([math.nan, math.nan, 1.0, 2.0], math.nan, 0), ([math.nan], math.nan, 0),
        ([2.0, math.nan, 1.0], 1.0, 2), ([3.0, 3.0, math.nan], 3.0, 1),
    ],
)  # fmt: skip
def test_the_mode_of_nan(values: list[float], value: float, index: int) -> None:
    """PyTorch's, of each of these."""
    mode = ox.tensor(values).mode()
    assert (mode.values.item(), mode.indices.item()) == pytest.approx((value, index), nan_ok=True)


def test_the_cpu_is_a_context() -> None:
    with ox.device("cpu") as device:
        assert ox.ones(1).device == device
    with pytest.raises(ArgumentError, match="always the CPU"), ox.device("cuda:1"):
        pass


@rows(
    ("index", "shape"),
    [
        ("x[:, t]", (2, 1, 3, 4)), ("x[:, f]", (2, 0, 3, 4)), ("x[0, False]", (0, 3, 4)), ("x[..., t]", (2, 3, 4, 1)),
        ("x[..., t, :]", (2, 3, 1, 4)), ("x[t, 0]", (1, 3, 4)), ("x[0, f, 1]", (0, 4)), ("x[None, t]", (1, 1, 2, 3, 4)),
        ("x[:, t, i]", (2, 2, 4)), ("x[i, t]", (2, 3, 4)), ("x[:, t, f]", (2, 0, 3, 4)), ("x[1:, t, 1:]", (1, 1, 2, 4)),
    ],
)  # fmt: skip
def test_a_bool_among_other_indices(index: str, shape: tuple[int, ...]) -> None:
    """A mask over a dimension of its own, as in PyTorch; also where it is recorded, and where it is written."""
    x = ox.arange(24).reshape(2, 3, 4)
    given = {"x": x, "t": ox.tensor(True), "f": ox.tensor(False), "i": ox.tensor([0, 1])}
    made = eval(index, given)
    assert made.shape == shape
    plain = index.replace("t", "True").replace("f", "False") if "i" not in index and "False" not in index else None
    if plain:
        assert made.tolist() == np.arange(24).reshape(2, 3, 4)[eval(plain, {"x": _Index()})].tolist()
    exec(f"{index} = -1", given)
    assert (x == -1).sum() == made.numel()


class _Index:
    """Gives back what stands in its brackets."""

    def __getitem__(self, index: Any) -> Any:
        return index


WRITTEN: dict[str, Callable[[Any, Any], Any]] = {
    "full_like": ox.full_like,
    "fill": ox.fill,
    "masked_fill": lambda x, v: x.masked_fill(ox.tensor([True, False]), v),
    "index_fill": lambda x, v: x.index_fill(0, ox.tensor([0]), v),
    "scatter": lambda x, v: x.scatter(0, ox.tensor([0]), v),
    "pad": lambda x, v: ox.nn.functional.pad(x, (1, 0), value=v),
    "fill_diagonal_": lambda x, v: ox.stack([x, x]).fill_diagonal_(v),
    "threshold": lambda x, v: ox.nn.functional.threshold(x, 0.0, v),
    "clamp": lambda x, v: x.clamp(max=v),
    "full": lambda x, v: ox.full((2,), v, dtype=x.dtype),
    "new_full": lambda x, v: x.new_full((2,), v),
    "x[0] =": lambda x, v: x.__setitem__(0, v),
    "x[mask] =": lambda x, v: x.__setitem__(ox.tensor([True, False]), v),
}
FLOATS_ONLY = {"clamp", "threshold"}  # where a float makes floats of integers, or integers are not taken
HALVES_MAY_BE_INFINITE = {"full", "new_full", "x[0] =", "x[mask] ="}


@rows("write", WRITTEN)
def test_numbers_that_do_not_fit_are_not_written(write: str) -> None:
    outside: list[tuple[Any, list[float]]] = [(ox.float32, [1e39, -3.5e38])]
    if write not in HALVES_MAY_BE_INFINITE:
        outside.append((ox.float16, [1e6, -1e9, 65519.0, 10**6]))
    if write not in FLOATS_ONLY:
        nan, inf = float("nan"), float("inf")
        outside += [
            (ox.uint8, [-1.0, 255.5, nan, inf]),
            (ox.int8, [-128.7, 1e3, nan]),
            (ox.int64, [2.0**63, nan, -inf]),
        ]
    for dtype, numbers in outside:
        for n in numbers:
            with pytest.raises(ArgumentError, match="does not fit"):
                WRITTEN[write](ox.zeros(2, dtype=dtype), n)
    for n in (65504.0, float("inf"), float("nan")):
        WRITTEN[write](ox.zeros(2).half(), n)
    WRITTEN[write](ox.zeros(2, dtype=ox.float32), 3.4e38)


def test_negative_numbers_for_bytes() -> None:
    """From the end, as in PyTorch; padding takes a float there."""
    x = ox.zeros(2, dtype=ox.uint8)
    x[0] = -1
    assert x.tolist() == [255, 0]
    with pytest.raises(ArgumentError, match="does not fit"):
        ox.nn.functional.pad(x, (1, 0), value=-1)


def test_numbers_in_halves_that_pytorch_writes_as_infinities() -> None:
    x = ox.zeros(2).half()
    x[x == 0] = -1e9
    assert x.tolist() == [-np.inf, -np.inf]
    assert ox.full((1,), 1e6, dtype=ox.float16).item() == np.inf


@rows("n", [300, -300, 2**70, -(2**70)])
def test_whole_numbers_beyond_a_type_are_compared(n: int) -> None:
    for dtype in (ox.uint8, ox.int8, ox.int64) if abs(n) > 1000 else (ox.uint8, ox.int8):
        x = ox.tensor([0, 100], dtype=dtype)
        above = [n > 0] * 2
        assert (x == n).tolist() == [False, False] and (x != n).tolist() == (n != x).tolist() == [True, True]
        assert (x < n).tolist() == (x <= n).tolist() == (n > x).tolist() == ox.lt(x, n).tolist() == above
        assert (x > n).tolist() == (x >= n).tolist() == ox.ge(x, n).tolist() == [not above[0]] * 2
