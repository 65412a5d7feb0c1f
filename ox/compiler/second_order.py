"""The recorded forward as eager code, for gradients of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.compiler.trace import Trace
from ox.core.mode import switch_mode
from ox.core.operator import make_tensor
from ox.graph.ir import Value
from ox.graph.replay import call


def replayed(trace: Trace, given: Sequence[Any]) -> list[Any]:
    """The differentiated results once more, with a history.

    Each operator follows the gradient of those inputs that it followed in the recording: what the code detached stays
    detached, though the graph has no operator for that.

    Args:
        given: a tensor for each argument and each state.
    """
    values = [*trace.arguments, *[state.value for state in trace.states]]
    known: dict[Value, Any] = dict(zip(values, given, strict=True))
    known.update({value: make_tensor(array) for value, array in trace.graph.constants.items()})
    with switch_mode(grad=True, autocast=None):
        for node, followed in zip(trace.graph.nodes[: trace.forward], trace.capture.followed, strict=False):
            inputs = [None if v is None else known[v] for v in node.inputs]
            kept = [
                x if x is None or (i < len(followed) and followed[i]) or x.node is None else x.detach()
                for i, x in enumerate(inputs)
            ]
            known.update(zip(node.outputs, call(node, kept), strict=False))
    return [known[result[1]] for result in trace.results if result[0] == "output" and result[2]]
