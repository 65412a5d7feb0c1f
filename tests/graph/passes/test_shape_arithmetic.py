"""Shape arithmetic gets shorter, and the sizes stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checked_pass import after
from rows import rows

import ox
from ox import ops
from ox.graph.passes.shape_arithmetic import shorten_shape_arithmetic

BATCH = {"batch": [2, 1, 5], "length": [6, 3, 4]}
TABLE = ox.randn(3, 4)


def zeros_like_it(x: Any) -> Any:
    y = x @ TABLE
    return y + ox.zeros(x.shape[0], x.shape[1], 4)


def twice(x: Any) -> Any:
    y = x.exp()
    return y.sum(2) * x.shape[1] + y.shape[1] * x.sum(2)


def a_quotient(x: Any) -> Any:
    return x.reshape(x.shape[0] * x.shape[1] // x.shape[1], x.shape[1], 3) * 1.5


def without_a_name(x: Any) -> Any:
    return x.sum((0, 1)) * ops.Shape(x)[2:].float()


CASES: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "sizes of a value": (zeros_like_it, ["MatMul", "Shape", "ConstantOfShape", "Add"]),
    "the same size twice": (
        twice, ["Exp", "ReduceSum", "Shape", "Squeeze", "Cast", "Mul", "ReduceSum", "Cast", "Mul", "Add"],
    ),
    "a product and a quotient": (a_quotient, ["Shape", "Reshape", "Mul"]),
    "a known size": (without_a_name, ["ReduceSum", "Cast", "Mul"]),
}  # fmt: skip


@rows("name", CASES)
def test_cases(name: str) -> None:
    function, expected = CASES[name]
    found, _ = after(shorten_shape_arithmetic, function, ["batch", "length", 3], BATCH)
    assert found == expected


def test_sizes_that_only_may_be_equal_stay_two() -> None:
    def both(x: Any) -> Any:
        return x.sum() * x.shape[0] - x.shape[1] * x.mean()

    found, _ = after(shorten_shape_arithmetic, both, ["batch", "length", 3], BATCH)
    assert found.count("Shape") == 2


def test_a_reshape_reads_the_shape_of_a_value_that_has_its_sizes() -> None:
    def there_and_back(x: Any) -> Any:
        rows = ops.Reshape(x, ox.tensor([-1, 3])) @ TABLE @ TABLE.T
        sizes = ops.Concat(ox.tensor([-1]), ops.Shape(x, start=1, end=2), ox.tensor([3]), axis=0)
        return ops.Reshape(rows, sizes)

    found, graph = after(shorten_shape_arithmetic, there_and_back, ["batch", "length", 3], BATCH)
    assert found == ["Reshape", "MatMul", "MatMul", "Shape", "Reshape"]
    assert graph.nodes[3].inputs == graph.inputs and not graph.nodes[3].attributes
