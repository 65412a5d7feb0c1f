"""A Slice of one element and a Squeeze are a Gather."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checked_pass import after
from rows import rows

import ox
from ox import ops
from ox.graph.passes.select_index import gather_selected

CASES: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "the first": (lambda x: x[:, 0].exp(), ["Gather", "Exp"]),
    "the last": (lambda x: x[..., -1].exp(), ["Gather", "Exp"]),
    "one before the last": (lambda x: x[:, -2].exp(), ["Gather", "Exp"]),
    "two axes": (lambda x: x[:, 1, 2].exp(), ["Slice", "Squeeze", "Exp"]),
    "an axis that stays": (lambda x: x[:, 0:1].exp(), ["Slice", "Exp"]),
    "two elements": (lambda x: x[:, 0:2].exp(), ["Slice", "Exp"]),
    "another axis": (
        lambda x: ops.Squeeze(ops.Slice(x, *map(ox.tensor, ([0], [1], [0]))), ox.tensor([1])), ["Slice", "Squeeze"],
    ),
}  # fmt: skip


@rows("name", CASES)
def test_cases(name: str) -> None:
    function, expected = CASES[name]
    found, _ = after(
        lambda graph, known: gather_selected(graph),
        function,
        ["batch", 1 if name == "another axis" else 3, 4],
        {"batch": [2, 1, 5]},
    )
    assert sorted(found) == sorted(expected)


def test_a_slice_that_others_read_stays() -> None:
    def both(x: Any) -> Any:
        part = x[:, 0:1]
        return part.squeeze(1), part.exp()

    found, _ = after(lambda graph, known: gather_selected(graph), both, ["batch", 3, 4], {"batch": [2, 5]})
    assert "Gather" not in found
