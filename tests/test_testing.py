"""`ox.testing`: what is close passes, and what is not says where."""

from __future__ import annotations

import pytest
from rows import rows

import ox
from ox.testing import assert_close, make_tensor


def test_close_is_close() -> None:
    x = ox.tensor([1.0, 2.0])
    assert_close(x, x + 1e-6)
    assert_close([x, {"a": 1.0}], [x, {"a": 1.0}])
    assert_close(x, x + 0.1, rtol=0.0, atol=0.2)
    assert_close(ox.tensor([float("nan")]), ox.tensor([float("nan")]), equal_nan=True)
    assert_close(x, x.double(), check_dtype=False)
    assert_close(ox.tensor([float("inf")]), ox.tensor([float("inf")]))


@rows(
    ("actual", "expected", "message"),
    [
        (ox.tensor([1.0, 2.0]), ox.tensor([1.0, 2.1]), r"1 of 2 elements are not close: at \[1\] 2.0 against 2.0"),
        (ox.ones(2), ox.ones(3), "shapes"),
        (ox.ones(2), ox.ones(2).double(), "element types"),
        (ox.tensor([3]), ox.tensor([4]), "not close"),
        ([ox.ones(1)], [ox.ones(1), ox.ones(1)], "lengths"),
        ({"a": ox.ones(1)}, {"b": ox.ones(1)}, "keys"),
        ({"a": [ox.ones(1)]}, {"a": [ox.zeros(1)]}, "at 'a' at 0"),
        (ox.tensor([float("nan")]), ox.tensor([float("nan")]), "not close"),
    ],
)
def test_what_differs_says_where(actual: object, expected: object, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_close(actual, expected)


def test_one_tolerance_needs_the_other() -> None:
    with pytest.raises(ox.errors.ArgumentError):
        assert_close(ox.ones(1), ox.ones(1), rtol=1e-3)
    with pytest.raises(AssertionError, match="mine"):
        assert_close(ox.ones(1), ox.zeros(1), msg="mine")


def test_made_tensors_stay_in_their_bounds() -> None:
    whole = make_tensor(200, dtype=ox.int64, low=-3, high=4)
    assert whole.dtype == ox.int64 and int(whole.min().item()) == -3 and int(whole.max().item()) == 3
    part = make_tensor((4, 5), dtype=ox.float64, low=0, high=1, requires_grad=True)
    assert part.shape == (4, 5) and part.requires_grad and float(part.min().item()) >= 0
