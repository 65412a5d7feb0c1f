"""Reshapes and Expands to constants of the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checked_pass import after
from rows import rows

from ox import ops
from ox.graph.passes.polynomial import Polynomial
from ox.graph.passes.reshape_targets import simplify_reshape_targets, target

SIZES = {"batch": [2, 1, 5], "length": [6, 3, 4]}


def heads(x: Any) -> Any:
    return x.reshape(x.shape[0], x.shape[1], 2, 4).exp()


def merged(x: Any) -> Any:
    return x.exp().reshape(x.shape[0] * x.shape[1], 8)


def there_and_back(x: Any) -> Any:
    return x.exp().reshape(x.shape[0] * x.shape[1], 8).reshape(x.shape[0], x.shape[1], 8).sin()


def three(x: Any) -> Any:
    return x.reshape(x.shape[0], x.shape[1] * 8).reshape(x.shape[0], x.shape[1], 2, 4).reshape(x.shape[0], -1, 4)


def spread(x: Any) -> Any:
    return x.sum(2, keepdim=True).expand(x.shape[0], x.shape[1], 5) * 2.0


def spread_to_the_same(x: Any) -> Any:
    return ops.Expand(x.exp(), ops.Shape(x)).sin()


CASES: dict[str, tuple[Callable[[Any], Any], list[str], list[list[int]]]] = {
    "a size is copied": (heads, ["Reshape", "Exp"], [[0, 0, 2, 4]]),
    "one is what is left": (merged, ["Exp", "Reshape"], [[-1, 8]]),
    "back again": (there_and_back, ["Exp", "Sin"], []),
    "three are one": (three, ["Reshape"], [[0, -1, 4]]),
    "sizes that are there": (spread, ["ReduceSum", "Expand", "Mul"], [[1, 1, 5]]),
    "an expansion to the same": (spread_to_the_same, ["Exp", "Sin"], []),
}


@rows("name", CASES)
def test_cases(name: str) -> None:
    function, expected, targets = CASES[name]
    found, graph = after(
        lambda g, known: [simplify_reshape_targets(g, known) for _ in range(3)], function, ["batch", "length", 8], SIZES
    )
    read = [n.inputs[1] for n in graph.nodes if n.op_type in ("Reshape", "Expand")]
    assert found == expected
    assert [graph.constants[v].tolist() for v in read if v is not None] == targets


def test_what_no_number_can_say_stays_computed() -> None:
    def turned(x: Any) -> Any:
        return x.reshape(x.shape[1], x.shape[0], 8) * 2.0

    found, _ = after(simplify_reshape_targets, turned, ["batch", "length", 8], SIZES)
    assert "Concat" in found and found[-2:] == ["Reshape", "Mul"]


def test_the_target_of_sizes() -> None:
    n, m, eight = (Polynomial.of(each) for each in ("n", "m", 8))
    assert target((n, m, eight), (n, m * eight)) == [0, -1] and target((n, m), (n, m)) == [0, 0]
    assert target((n, m), (m, n)) is None and target((n * m,), (n, m)) is None
    assert target((n, eight), (n, Polynomial.of(0))) is None, "a 0 would be a size of the input"


def test_graph_outputs_stay() -> None:
    _, graph = after(
        simplify_reshape_targets, lambda x: (x.exp(), x.exp().reshape(x.shape)), ["batch", "length", 8], SIZES
    )
    assert [v.name for v in graph.outputs] == ["output_0", "output_1"]
