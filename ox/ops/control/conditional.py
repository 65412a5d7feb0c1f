"""The choice between two graphs: If."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ox.core.subgraph import RecordedCall, call, check_same_types, condition_value, control, is_graph
from ox.core.tensor import TensorBase
from ox.core.types import Bool, V
from ox.core.vjp import subgraph_vjp
from ox.dtypes import ALL, is_floating

if TYPE_CHECKING:
    from ox.core.mode import Recorder

__all__ = ["If"]


@control("*outputs", V=ALL)
def If(cond: Bool, *captures: V, else_branch: Any, then_branch: Any) -> tuple[V]:
    """What one of two branches gives: `then_branch` where `cond`, one bool, is true, else `else_branch`.

    A branch is a Python function of `captures`, which may also read tensors from around it, or a recorded graph with
    these captures (a file lists none: there a branch names the values around it). ONNX If.
    """
    return tuple(call(then_branch if condition_value("If", cond) else else_branch, captures))


@If.recorder
def _(recording: "Recorder", inputs: list[TensorBase], attributes: dict[str, Any], followed: bool) -> RecordedCall:
    cond, *operands = inputs
    graphs, outside = [], []
    for name in ("then_branch", "else_branch"):
        branch = attributes[name]
        if is_graph(branch):
            graph, captured = branch.copy(), operands
        else:
            graph, captured, _ = recording.body(_closed(branch, operands))
        graphs.append(graph)
        outside.append(captured)
    then, other = graphs
    check_same_types(
        "the two branches do not give the same", ("the true one", "the false one"), then.outputs, other.outputs
    )
    union: dict[Any, Any] = {}

    def key(tensor: TensorBase) -> tuple[Any, ...]:  # one value can have two histories: x and x.detach()
        return recording.value(tensor), tensor.node, tensor.port

    for captured in outside:
        for tensor in captured:
            union.setdefault(key(tensor), tensor)
    for graph, captured in zip(graphs, outside, strict=True):
        graph.share([key(tensor) for tensor in captured], list(union))
    grown = {
        i
        for i, (v, w) in enumerate(zip(then.outputs, other.outputs, strict=True))
        if v.shape is None or v.shape != w.shape
    }
    attributes = {"else_branch": other, "then_branch": then}
    loose = then.loose() & other.loose()
    return RecordedCall([cond, *union.values()], attributes, len(then.outputs), grown, loose)


def _closed(branch: Callable[..., Any], operands: list[TensorBase]) -> Callable[[], Any]:
    return lambda: branch(*operands)


@If.gradient("captures")
def _(
    cond: TensorBase, captures: list[TensorBase], else_branch: Any, then_branch: Any, *cotangents: TensorBase | None
) -> list[TensorBase | None]:
    """An If over the branches' own gradients, which run the branch again."""
    wanted = [is_floating(x.array.dtype) and x.node is not None for x in captures]

    def backward(branch: Any) -> Callable[[], Any]:
        return lambda: tuple(subgraph_vjp(branch, captures, wanted, cotangents))

    found = iter(If(cond, then_branch=backward(then_branch), else_branch=backward(else_branch)))
    return [next(found) if want else None for want in wanted]
