"""Bodies for what is not an `ai.onnx` operator: each distinct call of the domain ``ox`` becomes one function."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.graph.form import Graph, Node
from ox.graph.passes import fold_constants, remove_dead
from ox.graph.record import record
from ox.ops import operator
from ox.ops.operator import OPS


def functions_of(graph: Graph) -> tuple[dict[str, Graph], dict[Node, str]]:
    """The bodies by function name, and which one each node calls. Calls that differ only in values share one."""
    functions: dict[str, Graph] = {}
    calls: dict[Node, str] = {}
    names: dict[Any, str] = {}
    for node in graph.all_nodes():
        if node.domain != "ox":
            continue
        key = (
            node.op_type,
            len(node.outputs),
            repr(sorted(node.attributes.items())),
            tuple(None if v is None else (v.dtype, len(v.shape or ())) for v in node.inputs),
        )
        if key not in names:
            # with a prefix, as onnx.reference takes a name of ai.onnx for that operator whatever the domain
            name = f"Ox{node.op_type}"
            name = name if name not in functions else f"{name}_{len(functions)}"
            names[key], functions[name] = name, body_of(node)
        calls[node] = names[key]
    return functions, calls


def body_of(node: Node) -> Graph:
    """Record the operator's body for inputs of these types and ranks, every size open."""
    op: Any = OPS[node.key]
    inputs = {
        f"input_{i}": operator.make_tensor(np.zeros(v.shape or (), v.dtype))
        for i, v in enumerate(node.inputs)
        if v is not None
    }
    places = [i for i, v in enumerate(node.inputs) if v is not None]

    def run(*given: Any) -> Any:
        arguments: list[Any] = [None] * len(node.inputs)
        for i, tensor in zip(places, given, strict=True):
            arguments[i] = tensor
        result = op.body(*arguments, **node.attributes)
        return result[: len(node.outputs)] if isinstance(result, tuple) else result

    dims = {name: [f"{name}_{axis}" for axis in range(t.array.ndim)] for name, t in inputs.items()}
    body = record(run, inputs, dims=dims)
    remove_dead(body)
    fold_constants(body)
    remove_dead(body)
    return body
