"""Constants come from one module, with the types, the sharing and the devices that it promises."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from rows import rows

from ox.core import constants
from ox.dtypes import bfloat16, float16, float32, int64, uint8
from ox.errors import ArgumentError
from ox.tensors.tensor import make_tensor

OX = Path(constants.__file__).resolve().parents[1]
ROOMS = ("core", "ops", "functions", "nn/functional", "tensors", "func", "autograd")
NUMPY = ("array", "asarray", "full", "zeros", "ones")


def makes_a_constant(function: ast.FunctionDef) -> bool:
    """Whether all that a function does is to make a tensor of what NumPy made of its arguments."""
    body = [n for n in function.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    if len(body) > 3 or any(isinstance(n, ast.If | ast.For) for n in ast.walk(function)):
        return False
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(("as_input", "make_tensor")) and call.args:
            inner = call.args[0]
            if isinstance(inner, ast.Call) and ast.unparse(inner.func) in [f"np.{name}" for name in NUMPY]:
                return True
    return False


def test_no_second_maker() -> None:
    found = []
    for room in ROOMS:
        for path in sorted((OX / room).rglob("*.py")):
            if path == Path(constants.__file__):
                continue
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef) and not node.decorator_list and makes_a_constant(node):
                    found.append(f"{path.relative_to(OX)}:{node.lineno} {node.name}")
    assert not found, "a constant is made by ox.core.constants"


@rows("dtype", [float16, bfloat16, float32, int64, uint8], ids=str)
def test_numbers_are_shared_by_value_and_type(dtype: np.dtype) -> None:
    a = constants.number(3, dtype)
    assert a is constants.number(3, dtype) and a.array.dtype == dtype and a.array.shape == ()
    assert not a.array.flags.writeable and a is not constants.number(3, np.dtype(np.float64))
    assert constants.constant(3, a) is a and constants.scalar_like(3, a) is a


def test_minus_zero_and_nan_are_no_others() -> None:
    for make in (constants.scalar, constants.number):
        for zero in (0.0, np.float32(0)):
            constants._constants.clear()
            made = [make(value, float32) for value in (-zero, zero, -zero)]
            assert [bool(np.signbit(each.array)) for each in made] == [True, False, True]
    assert np.isnan(constants.number(float("nan"), float32).array)
    assert constants.scalar(-1, uint8).array == 255
    with pytest.raises(ArgumentError, match="300 does not fit uint8"):
        constants.scalar(300, uint8)


def test_whole_numbers_and_fills() -> None:
    assert constants.ints(1, 2) is constants.ints(1, 2) and constants.ints(1, 2).array.tolist() == [1, 2]
    assert constants.axes_tensor([1, 2]) is not constants.axes_tensor([1, 2])
    assert constants.integer(7).array.dtype == int64 and constants.positions(3).array.tolist() == [0, 1, 2]
    assert constants.full(2.0, 3, float16) is constants.full(2.0, 3, float16)
    like = make_tensor(np.ones(1, np.float16))
    for made, value in ((constants.zeros([2, 3], like), 0), (constants.ones([2, 3], like), 1)):
        assert made.array.dtype == float16 and made.array.shape == (2, 3) and (made.array == value).all()
    assert constants.size_like(5, like).array == 5 and constants.size_like(5, like).array.dtype == float16
