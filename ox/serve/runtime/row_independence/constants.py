"""What a node holds itself."""

from __future__ import annotations

from ox.serve.runtime.row_independence.node import Node, rule
from ox.serve.runtime.row_independence.state import UNKNOWN, Tensor, constant


@rule("Constant")
def constant_(node: Node) -> Tensor:
    if (found := node.attribute("value")) is not None:
        return node.walker.constant(found.t)
    if (found := node.attribute("value_int")) is not None:
        return constant(int(found.i))
    if (found := node.attribute("value_ints")) is not None:
        return constant(list(found.ints))
    if (found := node.attribute("value_floats")) is not None:
        return Tensor((len(found.floats),), floats=tuple(found.floats))
    if (found := node.attribute("value_strings")) is not None:
        return Tensor((len(found.strings),))
    if node.attribute("value_float") is not None or node.attribute("value_string") is not None:
        return Tensor(())
    return UNKNOWN
