"""Operators that work element by element, and the arithmetic of sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from ox.serve.runtime.row_independence.node import MAX_INTEGERS, Node, rule
from ox.serve.runtime.row_independence.size import (
    BATCHED,
    NARROW,
    VALUE,
    Size,
    Symbols,
    divide,
    has_batch,
    is_exact,
    is_size,
)
from ox.serve.runtime.row_independence.state import Integers, Mixes, Tensor, broadcast, constant


@rule(
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Clip", "Cos", "Cosh",
    "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish",
    "Reciprocal", "RegexFullMatch", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
    "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    "Mean", "Pow", "PRelu", "StringConcat", "Sum", "SwiGLU", "Xor", "BitCast",
)  # fmt: skip
def pointwise(node: Node) -> Tensor:
    if node.attribute("broadcast") is not None:
        raise Mixes("broadcasts as before opset 7")
    return broadcast(node.given, node.symbols)


@rule("Cast", counts=True, places=True)
def cast(node: Node) -> Tensor:
    x, to = node[0], node.integer("to", 0)
    small = x.integers is None or all(not isinstance(v, int) or -NARROW < v < NARROW for v in x.integers.flat)
    if to == TensorProto.INT64 or (to == TensorProto.INT32 and small):
        return _cast_integers(node, x, to)
    if to == TensorProto.BOOL and x.integers is not None and all(isinstance(v, int) for v in x.integers.flat):
        return constant(np.array([int(bool(v)) for v in x.integers.flat], object).reshape(x.integers.shape))
    if x.counts or x.place:
        raise Mixes("the number of rows becomes data")
    return Tensor(x.dims, x.axis, x.outer)


def _cast_integers(node: Node, x: Tensor, to: int) -> Tensor:
    """What may not be in int32 what it is in int64 is another number after the cast."""
    if x.integers is None or all(map(is_exact_number, x.integers.flat)):
        return x
    values = [value if is_exact_number(value) else _unknown(node.symbols, f"cast to {to}", value)
              for value in x.integers.flat]  # fmt: skip
    array = np.empty(len(values), object)
    array[:] = values
    return constant(array.reshape(x.integers.shape))


def is_exact_number(size: Size) -> bool:
    """Whether it is the same number in int32 and in int64, without doubt."""
    return is_exact(size) and is_exact(size + 1)


@rule("CastLike", counts=True)
def cast_like(node: Node) -> Tensor:
    x = node[0]
    if x.counts:
        raise Mixes("the number of rows becomes data")
    return Tensor(x.dims, x.axis, x.outer)


@rule("Identity", counts=True, places=True, columns=True)
def identity(node: Node) -> Tensor:
    return node[0]


# ---- with integers that are followed


def _add(symbols: Symbols, a: Size, b: Size) -> Size:
    return a + b


def _sub(symbols: Symbols, a: Size, b: Size) -> Size:
    return a - b


def _mul(symbols: Symbols, a: Size, b: Size) -> Size:
    return a * b


def _div(symbols: Symbols, a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise Mixes("divides by zero")
        return -(-a // b) if (a < 0) != (b < 0) else a // b  # towards zero
    if not is_exact(a) or not is_exact(b):
        return _unknown(symbols, "div", a, b)
    exact = divide(a, b) if is_size(b) else None
    return symbols.result("div", a, b) if exact is None else exact


def _mod(symbols: Symbols, a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int) and a >= 0 and b > 0:
        return a % b
    if is_size(a) and is_size(b) and is_exact(a) and is_exact(b) and divide(a, b) is not None:
        return 0
    return _unknown(symbols, "mod", a, b)


def _unknown(symbols: Symbols, name: str, *operands: Size) -> Size:
    kind = BATCHED if any(map(has_batch, operands)) else VALUE
    # The same expression is another number in int32 than in int64, if it wraps round in one of them.
    return symbols.of((name, operands), kind) if all(map(is_exact, operands)) else symbols.fresh(kind)


def _compare(name: str, sign: Callable[[int], bool]) -> Callable[[Symbols, Size, Size], Size]:
    def compare(symbols: Symbols, a: Size, b: Size) -> Size:
        difference, certain = a - b, is_exact(a) and is_exact(b)
        if isinstance(difference, int):
            return int(sign(difference)) if difference == 0 or certain else _unknown(symbols, name, a, b)
        # One is certainly larger; by how much does not matter.
        for known, towards in ((difference, 1), (-difference, -1)):
            if certain and is_size(known):
                return int(sign(towards))
        return _unknown(symbols, name, a, b)

    return compare


def _extreme(name: str, sign: int) -> Callable[[Symbols, Size, Size], Size]:
    def choose(symbols: Symbols, a: Size, b: Size) -> Size:
        difference = (a - b) * sign
        if difference != 0 and not (is_exact(a) and is_exact(b)):
            return _unknown(symbols, name, *sorted((a, b), key=repr))
        if isinstance(difference, int):
            return a if difference >= 0 else b
        if is_size(difference):
            return a
        return b if is_size(-difference) else _unknown(symbols, name, *sorted((a, b), key=repr))

    return choose


def _where(symbols: Symbols, condition: Size, a: Size, b: Size) -> Size:
    if isinstance(condition, int):
        return a if condition else b
    return a if a == b else _unknown(symbols, "where", condition, a, b)


def _and(symbols: Symbols, a: Size, b: Size) -> Size:
    if a == 0 or b == 0:
        return 0
    return int(bool(a and b)) if isinstance(a, int) and isinstance(b, int) else _unknown(symbols, "and", a, b)


def _or(symbols: Symbols, a: Size, b: Size) -> Size:
    return 1 - _and(symbols, _not(symbols, a), _not(symbols, b))


def _not(symbols: Symbols, a: Size) -> Size:
    return int(not a) if isinstance(a, int) else _unknown(symbols, "not", a)


def _neg(symbols: Symbols, a: Size) -> Size:
    return -a


ARITHMETIC: dict[str, Callable[..., Size]] = {
    "Add": _add, "Sub": _sub, "Mul": _mul, "Div": _div, "Mod": _mod, "Neg": _neg, "Where": _where, "And": _and,
    "Or": _or, "Not": _not, "Max": _extreme("max", 1), "Min": _extreme("min", -1),
    "Equal": _compare("equal", lambda sign: sign == 0), "Greater": _compare("greater", lambda sign: sign > 0),
    "GreaterOrEqual": _compare("greater or equal", lambda sign: sign >= 0),
    "Less": _compare("less", lambda sign: sign < 0), "LessOrEqual": _compare("less or equal", lambda sign: sign <= 0),
}  # fmt: skip


@rule(*ARITHMETIC, counts=True)
def arithmetic(node: Node) -> Tensor:
    inputs = node.given
    if not any(tensor.axis is not None for tensor in inputs):
        calculated = calculate(node, inputs)
        if calculated is not None:
            return calculated
    if any(tensor.counts for tensor in inputs):
        raise Mixes("the number of rows becomes data")
    return broadcast(inputs, node.symbols)


def calculate(node: Node, inputs: list[Tensor]) -> Tensor | None:
    """The elements of the result, if those of all inputs are followed."""
    arrays: list[Integers] = []
    for index, tensor in enumerate(inputs):
        array = tensor.integers
        if array is None:
            if not any(other.counts for other in inputs):
                return None
            values = node.elements(index)  # numbers beside others that hold B: symbols
            if values is None:
                return None
            array = np.empty(len(values), object)
            array[:] = values
            array = array.reshape([size for size in tensor.sizes if isinstance(size, int)])
        arrays.append(array)
    spread = np.broadcast_arrays(*arrays)
    if spread[0].size > MAX_INTEGERS:
        return None
    function, symbols = ARITHMETIC[node.op], node.symbols
    result = np.empty(spread[0].size, object)
    for place, elements in enumerate(zip(*(array.ravel().tolist() for array in spread), strict=True)):
        value = elements[0]
        if node.op in ("Max", "Min"):
            for other in elements[1:]:
                value = function(symbols, value, other)
        else:
            value = function(symbols, *elements)
        if isinstance(value, int) and not -NARROW < value < NARROW:
            return None
        result[place] = value
    return constant(result.reshape(spread[0].shape))


# ---- element by element but for one thing


@rule("Dropout")
def dropout(node: Node) -> Sequence[Any]:
    """The identity, unless it is told to train."""
    training = node.get(2) if node.version >= 12 else None
    if training is not None and (training.integers is None or any(training.integers.ravel().tolist())):
        raise Mixes("draws random numbers")
    if node.version < 7 and not node.integer("is_test", 0):
        raise Mixes("draws random numbers")
    x = node[0]
    return [x.with_dims(x.sizes)] * node.count
