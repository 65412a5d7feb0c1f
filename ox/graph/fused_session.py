"""A function-operator's body as one ONNX Runtime session: its steps share memory and threads, and cost one call.

Large gradients made of many light operators (Gelu's has eleven) spend their time on touching fresh memory for every
intermediate result; inside one session those live in the runtime's arena and are reused.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.devices.onnxruntime import node_model, node_session
from ox.devices.onnxruntime.dispatch_table import LONG_ROW
from ox.dtypes import DType, float32
from ox.graph.ir import Node, Value

if TYPE_CHECKING:
    from ox.core.operator import Operator

ELEMENTS = 1 << 15  # of the first input; below, the body's kernels are as fast
Kind = tuple[DType, int] | None


class Body:
    """The accelerated form of one fused function-operator; see `ox.devices.Accelerated`."""

    def worthwhile(self, arrays: list[Any]) -> bool:
        return bool(arrays[0].size >= ELEMENTS and not node_session.forked)

    def run(self, op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        kinds = tuple([None if a is None else (a.dtype, a.ndim) for a in arrays])
        found, adds = session(op, kinds, node_model.freeze(attributes))
        if adds and _longest_sum(arrays[0].shape) > LONG_ROW:  # the kernels of the body's operators add in float64
            return op.kernel(np, *arrays, **attributes)
        feeds = {f"input_{i}": np.ascontiguousarray(a) for i, a in enumerate(arrays) if a is not None}
        result = found.run(None, feeds)
        return result[0] if len(result) == 1 else tuple(result)


@lru_cache(maxsize=1024)
def session(op: Operator, kinds: tuple[Kind, ...], attributes: tuple[tuple[str, Any], ...]) -> tuple[Any, bool]:
    """The session that runs the body for inputs of these types and ranks, and whether it adds up elements."""
    from ox.autograd.grad_mode import no_grad
    from ox.graph.writer.functions import body_of
    from ox.graph.writer.write import to_model

    inputs = [kind and Value(f"input_{i}", kind[0], None, (1,) * kind[1]) for i, kind in enumerate(kinds)]
    outputs = [Value(name) for name in op.schema.outputs]
    with no_grad():
        body = body_of(Node(op.name, op.domain, list(inputs), outputs, node_model.thaw(attributes)), {})
        made = node_session.runtime().session(to_model(body).SerializeToString(), level="ENABLE_EXTENDED")
    return made, any(_adds(node) for node in body.nodes)


def _adds(node: Node) -> bool:
    sums = node.op_type.startswith("Reduce") and node.op_type not in ("ReduceMax", "ReduceMin")
    return sums or node.op_type == "ScatterElements"


def _longest_sum(shape: tuple[int, ...]) -> int:
    """The most elements of an array that a sum over its first or its last axes adds."""
    return prod(shape[1:] if shape[-1] > shape[0] else shape[:-1]) if len(shape) > 1 else shape[0]


def offer(op: Operator, arrays: list[Any]) -> Body | None:
    """For `ox.devices.accelerators`: fused function-operators on float32, where ONNX Runtime is installed."""
    if not getattr(op, "fused", False) or not node_session.installed():
        return None
    floats = [a.dtype for a in arrays if a is not None and a.dtype.kind not in "iub"]
    return Body() if floats and all(dtype == float32 for dtype in floats) else None
