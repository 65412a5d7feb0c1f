"""A Pad of zeros before a Conv is a part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checked_pass import after
from rows import rows

import ox
from ox import nn, ops
from ox.graph.passes.fold_pads import fold_pads

F = nn.functional
ox.manual_seed(0)
CONV, PADDED, LINE = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3, 2, padding=(1, 2)), nn.Conv1d(3, 4, 3)


def read_twice(x: Any) -> Any:
    y = F.pad(x, (1, 1, 1, 1))
    return CONV(y), y.sum()


def named_axes(x: Any) -> Any:
    pads, axes = ox.tensor([1, 2]), ox.tensor([-1])
    return ops.Conv(ops.Pad(x, pads, None, axes), CONV.weight, CONV.bias)


CASES: dict[str, tuple[Callable[[Any], Any], list[str], list[int] | None]] = {
    "zeros": (lambda x: CONV(F.pad(x, (0, 1, 2, 3))), ["Conv"], [2, 0, 3, 1]),
    "beside pads of its own": (lambda x: PADDED(F.pad(x, (1, 0, 0, 0))), ["Conv"], [1, 3, 1, 2]),
    "some axes": (named_axes, ["Conv"], [0, 1, 0, 2]),
    "ones": (lambda x: CONV(F.pad(x, (1, 1, 1, 1), value=1.0)), ["Pad", "Conv"], None),
    "reflected": (lambda x: CONV(F.pad(x, (1, 1, 1, 1), mode="reflect")), ["Pad", "Conv"], None),
    "cut": (lambda x: CONV(F.pad(x, (-1, 1, 1, 1))), ["Pad", "Conv"], None),
    "channels": (lambda x: CONV(F.pad(x[:, :2], (1, 1, 1, 1, 0, 1))), ["Slice", "Pad", "Conv"], None),
    "read twice": (read_twice, ["Pad", "Conv", "ReduceSum"], None),
}


@rows("name", CASES)
def test_cases(name: str) -> None:
    function, expected, pads = CASES[name]
    found, graph = after(
        lambda graph, known: fold_pads(graph), function, ["batch", 3, 6, 7], {"batch": [2, 1, 5]}, exact=False
    )
    assert found == expected
    assert pads is None or graph.nodes[-1].attributes["pads"] == pads
