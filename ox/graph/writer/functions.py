"""Bodies for what is not an `ai.onnx` operator, or not yet: each distinct call becomes one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.inliner

from ox.core import operator
from ox.core.operator import OPS
from ox.errors import ExportError, OxError
from ox.graph.ir import Array, Graph, Node, Value
from ox.graph.passes.cleanup import fold_constants, remove_dead
from ox.graph.record.recording import record
from ox.graph.writer import opset as opsets
from ox.graph.writer.older_opsets import in_older_words


def functions_of(graph: Graph, opset: int) -> tuple[dict[str, Graph], dict[Node, str]]:
    """The bodies by function name, and which one each node calls. Calls that differ only in values share one.

    Functions stand for the operators of the domain ``ox``, and for those that `opset` lacks and that have an expansion.
    """
    functions: dict[str, Graph] = {}
    calls: dict[Node, str] = {}
    names: dict[Any, str] = {}
    expandable = opsets.expandable(graph)
    for node in graph.all_nodes():
        known: dict[Value, Array] = {}
        if node.domain != "ox":
            if node not in expandable or not opsets.obstacle(node, opset):
                continue
            known = expandable[node]
        key = (
            node.op_type,
            len(node.outputs),
            repr(sorted(node.attributes.items())),
            tuple(None if v is None else (v.dtype, len(_sizes(v))) for v in node.inputs),
            tuple(array.tobytes() for array in known.values()),
        )
        if key not in names:
            # with a prefix, because onnx.reference ignores the domain for names of ai.onnx
            name = f"Ox{node.op_type}"
            name = name if name not in functions else f"{name}_{len(functions)}"
            names[key], functions[name] = name, in_older_words(body_of(node, known), opset)
        calls[node] = names[key]
    return functions, calls


def body_of(node: Node, known: dict[Value, Array], body: Callable[..., Any] | None = None) -> Graph:
    """Record the operator's body, or another one, for inputs of these types and ranks, every size open; the known ones
    have values.

    Raises:
        ExportError: the body depends on the rank of an input, which is not known: its file does not state it.
    """
    op: Any = OPS[node.key]
    body = body or (op.body if node.domain else op.expanded)
    inputs = {
        f"input_{i}": operator.make_tensor(np.zeros(_sizes(v), v.dtype))
        for i, v in enumerate(node.inputs)
        if v is not None
    }
    places = [i for i, v in enumerate(node.inputs) if v is not None]

    def run(*given: Any) -> Any:
        arguments: list[Any] = [None] * len(node.inputs)
        for i, tensor in zip(places, given, strict=True):
            value: Any = node.inputs[i]
            arguments[i] = operator.make_tensor(known[value]) if value in known else tensor
        result = body(*arguments, **node.attributes)
        return result[: len(node.outputs)] if isinstance(result, tuple) else result

    dims = {name: [f"{name}_{axis}" for axis in range(t.array.ndim)] for name, t in inputs.items()}
    try:
        recorded = record(run, inputs, dims=dims)
    except (ArithmeticError, LookupError, OxError) as error:
        if all(v is None or v.shape is not None for v in node.inputs):
            raise
        raise ExportError(
            f"{node.op_type} cannot be written for this opset: the sizes of its inputs are not known",
            where=node.place or None,
            hint="a higher --opset; in a branch or loop, also types and sizes that the file states",
        ) from error
    remove_dead(recorded)
    fold_constants(recorded)
    remove_dead(recorded)
    return recorded


def _sizes(value: Value) -> tuple[int, ...]:
    """Those of the recorded run; in a subgraph that was read from a file, 1 for what is not known."""
    if value.shape is not None:
        return value.shape
    return tuple(size if isinstance(size, int) else 1 for size in value.dims or ())


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without local functions: their bodies stand at each call. For runtimes that read no functions."""
    return onnx.inliner.inline_local_functions(model) if model.functions else model
