"""Algebra: arithmetic that changes nothing, or that is shorter another way.

| rule | exact |
|---|---|
| x·1, x/1, x - 0, x + (-0.0), x ** 1, and x + 0 of integers | yes. x + 0.0 stays: it makes 0.0 of -0.0 |
| x·(-1) and x/(-1) are -x; -(-x), not not x | yes |
| x + (-y), (-x) + y and x - (-y) as one Sub or Add | yes |
| x/c is x·(1/c) where c is a power of two and both have all their digits | yes |
| (x·c)·d is x·(c·d) where c and d are on one side of 1, so that nothing overflows in between alone | rounded once |
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from ox.dtypes import is_floating
from ox.graph.ir import Array, Graph, Node, Value
from ox.graph.passes.walk import Walk

Rule = Callable[[Node, Walk], Value | None]


def simplify_arithmetic(graph: Graph) -> bool:
    """Apply the rules of this module. Whether any did.

    Needs nodes in an order in which they run. Numbers are constants of the code with one element: a parameter's value
    is not looked at. Functions of the domain ``ox`` are not touched.
    """
    walk = Walk(graph)
    for node in walk:
        rule = RULES.get(node.key)
        found = rule(node, walk) if rule is not None else None
        if found is not None:
            walk.stand_for(node, [found])
        else:
            walk.keep(node)
    return walk.changed


def _scalar(value: Value | None, other: Value | None, walk: Walk) -> Array | None:
    """The only element of a constant that gives the result no more dimensions than `other` has."""
    array = walk.number(value)
    if array is None or array.size != 1 or other is None:
        return None
    if array.ndim and (other.shape is None or array.ndim > len(other.shape)):
        return None
    return array.reshape(())


def _is(number: Array | None, wanted: float) -> bool:
    """Whether it is this number, with this sign of a zero."""
    if number is None or number.dtype.kind == "b":
        return False
    found = float(number)
    return found == wanted and np.signbit(found) == np.signbit(wanted)


def _become(node: Node, walk: Walk, op_type: str, *inputs: Value | None) -> None:
    """Let the node be another operator without attributes, with the same result."""
    node.op_type, node.attributes, node.inputs = op_type, {}, list(inputs)
    walk.changed = True


def _negated(value: Value | None, walk: Walk) -> Value | None:
    """x where the value is -x."""
    made = walk.maker(value)
    return made.inputs[0] if made is not None and made.key == "Neg" else None


def _mul(node: Node, walk: Walk) -> Value | None:
    for x, c in (node.inputs, node.inputs[::-1]):
        number = _scalar(c, x, walk)
        if _is(number, 1):
            return x
        if _is(number, -1):
            _become(node, walk, "Neg", x)
            return None
        if number is not None and is_floating(number.dtype):
            assert x is not None
            _chain(node, x, number, walk)
    return None


def _chain(node: Node, x: Value, number: Array, walk: Walk) -> None:
    """Multiply by one constant in place of two."""
    inner = walk.maker(x)
    if inner is None or inner.key != "Mul":
        return
    for source, c in (inner.inputs, inner.inputs[::-1]):
        first = _scalar(c, source, walk)
        if first is None:
            continue
        a, b = float(first), float(number)
        with np.errstate(all="ignore"):
            product = np.asarray(a * b, number.dtype)
        one_side = (abs(a) <= 1 and abs(b) <= 1) or (abs(a) >= 1 and abs(b) >= 1)
        if one_side and _normal(product):
            _become(node, walk, "Mul", source, walk.constant(product, node.outputs[0]))
            return


def _normal(number: Array) -> bool:
    """Whether a float is neither zero, subnormal, infinite nor NaN."""
    info = ml_dtypes.finfo(number.dtype)  # type: ignore[no-untyped-call]
    return float(info.smallest_normal) <= abs(float(number)) < float("inf")


def _div(node: Node, walk: Walk) -> Value | None:
    x, c = node.inputs
    number = _scalar(c, x, walk)
    if _is(number, 1):
        return x
    if number is None or not is_floating(number.dtype):
        return None
    if _is(number, -1):
        _become(node, walk, "Neg", x)
    elif _normal(number) and abs(np.frexp(float(number))[0]) == 0.5:
        inverse = np.asarray(1 / float(number), number.dtype)
        if _normal(inverse):
            _become(node, walk, "Mul", x, walk.constant(inverse, node.outputs[0]))
    return None


def _add(node: Node, walk: Walk) -> Value | None:
    for x, y in (node.inputs, node.inputs[::-1]):
        zero = _scalar(y, x, walk)
        if zero is not None and (_is(zero, -0.0) if is_floating(zero.dtype) else _is(zero, 0.0)):
            return x
    a, b = node.inputs
    if (y := _negated(b, walk)) is not None:
        _become(node, walk, "Sub", a, y)
    elif (y := _negated(a, walk)) is not None:
        _become(node, walk, "Sub", b, y)
    return None


def _sub(node: Node, walk: Walk) -> Value | None:
    x, c = node.inputs
    if _is(_scalar(c, x, walk), 0.0):
        return x
    if (y := _negated(c, walk)) is not None:
        _become(node, walk, "Add", x, y)
    return None


def _pow(node: Node, walk: Walk) -> Value | None:
    return node.inputs[0] if _is(_scalar(node.inputs[1], node.inputs[0], walk), 1) else None


def _twice(node: Node, walk: Walk) -> Value | None:
    inner = walk.maker(node.inputs[0])
    return inner.inputs[0] if inner is not None and inner.key == node.key else None


RULES: dict[str, Rule] = {
    "Mul": _mul, "Div": _div, "Add": _add, "Sub": _sub, "Pow": _pow, "Neg": _twice, "Not": _twice,
}  # fmt: skip
