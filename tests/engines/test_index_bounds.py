"""Which integers of the inputs of a graph are held to a range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rows import rows

import ox
from ox import ops
from ox.engines.index_bounds import index_bounds
from ox.errors import BoundsError
from ox.graph.record.recording import record

TABLE = ox.ones(3, 2)
# what a lookup makes of the integers first
FOLLOWED: dict[str, Callable[[Any], Any]] = {
    "themselves": lambda i: i,
    "another shape": lambda i: i.reshape(-1).unsqueeze(1),
    "another order": lambda i: ops.ReverseSequence(i, ox.tensor([1, 2])),
    "copies": lambda i: ops.Tile(i, ox.tensor([2, 1])),
    "blocks": lambda i: ops.DepthToSpace(i.reshape(1, 4, 1, 1), blocksize=2),
    "a part": lambda i: i[:1],
}


@rows("form", FOLLOWED)
def test_indices_in_another_form_are_checked(form: str) -> None:
    graph = record(lambda i: ops.Gather(TABLE, FOLLOWED[form](i)), {"i": ox.tensor([[0, 2], [1, 0]])})
    (bound,) = index_bounds(graph)
    assert bound.value.name == "i"
    bound.check(ox.tensor([[0, 2], [-3, 0]]).numpy())
    with pytest.raises(BoundsError):
        bound.check(ox.tensor([[0, 3], [1, 0]]).numpy())


def test_computed_indices_are_not() -> None:
    graph = record(lambda i: ops.Gather(TABLE, i * 0), {"i": ox.tensor([7])})
    assert index_bounds(graph) == []
