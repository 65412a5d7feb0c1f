"""Zeros that a Pad adds around the input of a Conv are pads of the Conv."""

from __future__ import annotations

from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.walk import Walk


def fold_pads(graph: Graph) -> bool:
    """Drop each Pad of zeros, along the axes that a Conv slides over, which only that Conv reads. Whether any was.

    Exact: a Conv multiplies the same zeros. The numbers must be constants of the code.
    """
    readers = graph.reads()
    walk = Walk(graph)
    for node in walk:
        pad = walk.maker(node.inputs[0]) if node.key == "Conv" else None
        pads = _pads(pad, walk) if pad is not None and pad.key == "Pad" and readers[pad.outputs[0]] == 1 else None
        if pad is not None and pads is not None and node.attributes.get("auto_pad", "NOTSET") in (None, "NOTSET"):
            own = node.attributes.get("pads") or [0] * len(pads)
            node.attributes = {**node.attributes, "pads": [a + b for a, b in zip(own, pads, strict=True)]}
            node.inputs = [pad.inputs[0], *node.inputs[1:]]
            walk.changed = True
        walk.keep(node)
    return walk.changed


def _pads(pad: Node, walk: Walk) -> list[int] | None:
    """How many zeros it adds, as a Conv says it; None where it adds anything else, or takes away."""
    source, amounts, value, axes = [*pad.inputs, None, None, None][:4]
    numbers = _numbers(amounts, walk)
    filling = walk.number(value)
    rank = len(pad.outputs[0].shape) if pad.outputs[0].shape is not None else 0
    zero = value is None or (filling is not None and not filling.any())
    if numbers is None or min(numbers, default=0) < 0 or not zero or not rank or source is None:
        return None
    if pad.attributes.get("mode", "constant") not in (None, "constant"):
        return None
    places = list(range(rank)) if axes is None else _numbers(axes, walk)
    if places is None:
        return None
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(places):
        before[axis % rank], after[axis % rank] = numbers[i], numbers[i + len(places)]
    return None if any([*before[:2], *after[:2]]) else [*before[2:], *after[2:]]


def _numbers(value: Value | None, walk: Walk) -> list[int] | None:
    array = walk.number(value)
    return None if array is None else [int(n) for n in array.ravel()]
