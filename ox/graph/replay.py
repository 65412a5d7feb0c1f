"""Running a graph: each node is a call of the operator of that name. Importing is replaying."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ox.core import operator
from ox.core.mode import MODE
from ox.core.operator import OPS
from ox.errors import LoadError
from ox.graph.ir import Graph, Node, Value

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


Run = Callable[[Node, "Sequence[Tensor | None]"], "tuple[Tensor, ...]"]


def call(node: Node, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """Run one node. Raises LoadError for an operator that ox does not have."""
    op = OPS.get(node.key)
    if op is None:
        raise LoadError(f"ox has no operator {node.key}", where=node.place or node.name)
    if node.key == "Identity" and (inputs[0] is None or isinstance(inputs[0], list)):
        return (inputs[0],)  # type: ignore[return-value]  # a sequence or an absent optional
    recording = MODE.get().recording
    since = 0 if recording is None else recording.count()
    result = op(*inputs, outputs=len(node.outputs), **node.attributes)
    if recording is not None and node.place:
        recording.copy_call_site(node, since)
    results = result if isinstance(result, tuple) else (result,)
    if len(results) < len(node.outputs):
        raise LoadError(
            f"{node.key} gives fewer values than the graph names",
            where=node.place or node.name,
            expected=f"{len(node.outputs)}",
            got=str(len(results)),
        )
    return results


_running: ContextVar[Run] = ContextVar("ox_run", default=call)


def replay(
    graph: Graph, inputs: Sequence[Tensor], constants: Mapping[str, Tensor] | None = None, run: Run | None = None
) -> list[Tensor]:
    """The graph's outputs for these inputs; differentiable and recordable like any other code.

    Args:
        inputs: one tensor for each graph input, in order; for a subgraph then one for each capture.
        constants: tensors to stand for constants of these names (trainable parameters).
        run: what runs a node, here and in subgraphs; by default what runs the graph around.
    """
    known = values(graph, inputs, constants, run)
    return [known[v] for v in graph.outputs]


def values(
    graph: Graph, inputs: Sequence[Tensor], constants: Mapping[str, Tensor] | None = None, run: Run | None = None
) -> dict[Value, Tensor]:
    """`replay`, and everything on the way."""
    if run is None:
        run = _running.get()
    elif run is not _running.get():
        token = _running.set(run)
        try:
            return values(graph, inputs, constants)
        finally:
            _running.reset(token)
    given = constants or {}
    known: dict[Value, Any] = dict(zip([*graph.inputs, *graph.captures], inputs, strict=True))
    for value, array in graph.constants.items():
        known[value] = given[value.name] if value.name in given else operator.make_tensor(array)
    for node in graph.nodes:
        known.update(zip(node.outputs, run(node, [None if v is None else known[v] for v in node.inputs]), strict=False))
    return known
