"""Running a function's operators once for many examples: record it for one, and give each operator a further dimension.

The dimension of the examples is the first one of every value that differs between them. A rule says how an operator is
called then; `Cannot` means that the examples must be run one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ox import random
from ox.autograd.inside import INSIDE
from ox.autograd.tree import flatten
from ox.errors import RecordError
from ox.func.rules import RULES, Batch, Cannot, Item
from ox.graph.form import Graph, Value
from ox.graph.passes import remove_dead
from ox.graph.record import Recording
from ox.ops import operator
from ox.ops.mode import switched
from ox.ops.operator import OPS

if TYPE_CHECKING:
    from ox.tensor import Tensor


class _ForOne(Recording):
    """A recording that remembers which tensors its constants are, so their gradients are not lost."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: dict[Value, Tensor] = {}
        self.examples: list[Tensor] = []

    def constant(self, tensor: Tensor, name: str | None = None) -> Value:
        value = super().constant(tensor, name)
        self.tensors.setdefault(value, tensor.detach() if tensor._origin == INSIDE else tensor)
        return value

    def alias(self, new: Tensor, old: Tensor) -> None:
        if new._recorded is None or new._recorded.recording is not self or any(new is x for x in self.examples):
            raise Cannot  # something from outside is written
        super().alias(new, old)


def together(
    one: Callable[[list[Any]], Any], leaves: Sequence[Any], dims: Sequence[int | None]
) -> tuple[list[tuple[Any, bool]], Any, bool]:
    """The results for all examples: each with whether it has a dimension of examples; how to put them together; and
    whether random numbers were drawn.

    Raises:
        Cannot: there is an operator without a rule, or the function looks at values.
    """
    graph, tensors, rebuild, moved = _recorded(one, leaves, dims)
    remove_dead(graph)
    if any(node.key not in RULES for node in graph.nodes):
        raise Cannot
    mapped = [(x, d) for x, d in zip(leaves, dims, strict=True) if d is not None]
    count = mapped[0][0].shape[mapped[0][1]]
    known: dict[Value, Item] = {}
    for value, (x, d) in zip(graph.inputs, mapped, strict=True):
        order = [d, *(i for i in range(x.data.ndim) if i != d)]
        known[value] = Item(x if d == 0 else x.permute(order), True, value.shape)
    for value in graph.constants:
        known[value] = Item(tensors[value], False, value.shape)
    for node in graph.nodes:
        inputs = [None if v is None else known[v] for v in node.inputs]
        shapes = [v.shape for v in node.outputs]
        if any(x is not None and x.batched for x in inputs):
            made = RULES[node.key](Batch(OPS[node.key], inputs, dict(node.attributes), shapes, count))
            outputs = [(y, True) for y in (made if isinstance(made, tuple) else (made,))]
        else:
            plain = OPS[node.key](*[x and x.tensor for x in inputs], outputs=len(shapes), **node.attributes)
            outputs = [(y, False) for y in (plain if isinstance(plain, tuple) else (plain,))]
        for value, (y, batched) in zip(node.outputs, outputs, strict=True):
            known[value] = Item(y, batched, value.shape)
    return [(known[v].tensor, known[v].batched) for v in graph.outputs], rebuild, moved


def _recorded(one: Any, leaves: Sequence[Any], dims: Sequence[int | None]) -> tuple[Graph, Any, Any, bool]:
    from ox.func.vmap import check_result

    recording = _ForOne()
    before = random.default_generator.counter
    examples = []
    for k, (x, d) in enumerate(zip(leaves, dims, strict=True)):
        if d is None:
            examples.append(x)
            continue
        array = (
            np.moveaxis(x.data, d, 0)
            if isinstance(x.data, np.ndarray)
            else x.data.transpose((d, *(i for i in range(x.data.ndim) if i != d)))
        )
        example = operator.make_tensor(array[0].copy())
        recording.input(f"input_{k}", example)
        recording.examples.append(example)
        examples.append(example)
    try:
        with switched(recording=recording):
            results, rebuild = flatten(one(examples))
            named = {f"output_{k}": check_result(y) for k, y in enumerate(results)}
            graph = recording.finish(named)
    except RecordError:
        raise Cannot from None
    finally:
        recording.forget()
    return graph, recording.tensors, rebuild, random.default_generator.counter is not before
