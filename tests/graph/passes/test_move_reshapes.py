"""Reshapes around what works row by row go, and the results are the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checked_pass import after
from rows import rows

import ox
from ox import nn
from ox.graph.ir import Graph
from ox.graph.passes.move_reshapes import move_reshapes
from ox.graph.passes.shape_arithmetic import shorten_shape_arithmetic

F = nn.functional
SIZES = {"batch": [2, 1, 5], "length": [6, 3, 4]}
ox.manual_seed(0)
UP, GATE, DOWN = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8)
NORM, WIDE = nn.LayerNorm(12), ox.randn(12)


def a_residual(x: Any) -> Any:
    y = UP(x)
    return DOWN(y + UP(x.exp()))


def read_in_between(x: Any) -> Any:
    y = F.gelu(UP(x))
    return DOWN(y), y.sum(1)


def along_another_axis(x: Any) -> Any:
    return DOWN(UP(x).softmax(1))


def with_a_mask(x: Any) -> Any:
    return DOWN(UP(x) * x.sum(2, keepdim=True))


CASES: dict[str, tuple[Callable[[Any], Any], int]] = {  # how many Reshapes are left
    "an activation": (lambda x: DOWN(F.gelu(UP(x))), 2),
    "several readers": (lambda x: DOWN(F.silu(GATE(x)) * UP(x)), 3),
    "a norm, a row and a number": (lambda x: DOWN(NORM(UP(x)) * WIDE + 0.5), 2),
    "softmax along rows": (lambda x: DOWN(UP(x).softmax(-1)), 2),
    "a sum of two": (a_residual, 3),
    "a part is read elsewhere": (read_in_between, 4),
    "the largest of a row": (lambda x: DOWN(ox.ops.Hardmax(UP(x))), 2),
    "along another axis": (along_another_axis, 4),
    "a factor for each row": (with_a_mask, 4),
    "three layers": (lambda x: DOWN(F.relu(UP(F.relu(DOWN(F.relu(UP(x))))))), 2),
}


@rows("name", CASES)
def test_cases(name: str) -> None:
    function, left = CASES[name]
    weights = {k: t for i, m in enumerate((UP, GATE, DOWN, NORM)) for k, t in _named(m, i).items()}
    found, graph = after(apply, function, ["batch", "length", 8], SIZES, weights)
    assert found.count("Reshape") == left
    assert len({v.name for v in graph.values()}) == len(list(graph.values())), "names stay unique"


def apply(graph: Graph, known: Any) -> None:
    """After Shapes in between read from elsewhere."""
    shorten_shape_arithmetic(graph, known)
    move_reshapes(graph, known)


def _named(module: Any, number: int) -> dict[str, Any]:
    return {f"{number}.{name}": tensor for name, tensor in module.named_parameters()}
