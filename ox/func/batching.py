"""Running a function's operators once for many examples: record it for one, and give each operator a further dimension.

The dimension of the examples is the first one of every value that differs between them. A rule defines the call of an
operator then; `Cannot` means that the examples must be run one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ox import random
from ox.autograd.nested_grad import INSIDE, tracked_copy
from ox.autograd.pytree import flatten
from ox.core import operator
from ox.core.mode import switch_mode
from ox.core.node import Leaf
from ox.core.operator import OPS
from ox.devices import cuda_state
from ox.errors import RecordError
from ox.func.batching_rules import Batch, Item, NotBatchable, rule_of
from ox.graph.ir import Node, Value
from ox.graph.passes.cleanup import remove_dead
from ox.graph.record.recording import Recording

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


class _ExampleRecording(Recording):
    """A recording that remembers as which tensor each call read a constant, and where the function cut a history off
    (`detach`, `no_grad`): gradients go through all examples as they would through one."""

    def __init__(self) -> None:
        super().__init__()
        self.examples: list[Tensor] = []
        self.reads: dict[Node, list[Tensor | None]] = {}

    def add(self, op: Any, inputs: tuple[Any, ...], attributes: dict[str, Any], outputs: tuple[Any, ...]) -> None:
        super().add(op, inputs, attributes, outputs)
        self.reads[self.graph.nodes[-1]] = [None if x is None else self._outside_history(x) for x in inputs]

    def _outside_history(self, x: Tensor) -> Tensor:
        """The tensor without a history that begins inside the function."""
        inside = isinstance(x.node, Leaf) and x._recorded is not None and x._recorded.recording is self
        return x.detach() if inside or x._origin == INSIDE else x

    def cut(self, x: Tensor) -> bool:
        return self._outside_history(x).node is None

    def on_custom_gradient(self) -> None:
        raise NotBatchable  # a gradient that operators do not know

    def alias(self, new: Tensor, old: Tensor) -> None:
        if new._recorded is None or new._recorded.recording is not self or any(new is x for x in self.examples):
            raise NotBatchable  # something from outside is written
        super().alias(new, old)


def run_batched(
    one: Callable[[list[Any]], Any], leaves: Sequence[Any], dims: Sequence[int | None]
) -> tuple[list[tuple[Any, bool]], Any, bool]:
    """The results for all examples: each with whether it has a dimension of examples; how to put them together; and
    whether random numbers were drawn.

    Raises:
        Cannot: there is an operator without a rule, or the function looks at values.
    """
    recording, cut, rebuild, moved = _recorded(one, leaves, dims)
    graph = recording.graph
    remove_dead(graph)
    if any(rule_of(node.key) is None for node in graph.nodes):
        raise NotBatchable
    mapped = [(x, d) for x, d in zip(leaves, dims, strict=True) if d is not None]
    count = mapped[0][0].shape[mapped[0][1]]
    known: dict[Value, Item] = {}
    for value, (x, d) in zip(graph.inputs, mapped, strict=True):
        order = [d, *(i for i in range(x.array.ndim) if i != d)]
        known[value] = Item(x if d == 0 else x.permute(order), True, value.shape)
    # casts of autocast are recorded; what the function makes, and rules do, is on the host
    with switch_mode(autocast=None), cuda_state.taking_host_arrays_along():
        for node in graph.nodes:
            reads = recording.reads.get(node) or [None] * len(node.inputs)  # what `finish` adds reads no constants
            inputs = [None if v is None else _read(v, x, known) for v, x in zip(node.inputs, reads, strict=False)]
            shapes = [v.shape for v in node.outputs]
            if any(x is not None and x.batched for x in inputs):
                rule = rule_of(node.key)
                assert rule is not None
                made = rule(Batch(OPS[node.key], inputs, dict(node.attributes), shapes, count))
                outputs = [(y, True) for y in (made if isinstance(made, tuple) else (made,))]
            else:
                plain = OPS[node.key](*[x and x.tensor for x in inputs], outputs=len(shapes), **node.attributes)
                outputs = [(y, False) for y in (plain if isinstance(plain, tuple) else (plain,))]
            for value, (y, batched) in zip(node.outputs, outputs, strict=True):
                known[value] = Item(y, batched, value.shape)
    items = [_cut(known[v]) if end else known[v] for v, end in zip(graph.outputs, cut, strict=True)]
    return [(item.tensor, item.batched) for item in items], rebuild, moved


def _read(value: Value, x: Any, known: dict[Value, Item]) -> Item:
    """What a call reads: the value of all examples, or what is the same for all, with the history that it had here."""
    item = known.get(value)
    if item is None:
        return Item(x, False, value.shape)
    return _cut(item) if x is not None and x.node is None else item


def _cut(item: Item) -> Item:
    """The value without its history."""
    return item if item.tensor.node is None else Item(item.tensor.detach(), item.batched, item.shape)


def _recorded(
    one: Any, leaves: Sequence[Any], dims: Sequence[int | None]
) -> tuple[_ExampleRecording, list[bool], Callable[[list[Any]], Any], bool]:
    from ox.func.vectorize import check_result

    recording = _ExampleRecording()
    before = random.default_generator.counter
    examples = []
    for k, (x, d) in enumerate(zip(leaves, dims, strict=True)):
        if d is None:
            examples.append(x)
            continue
        array = (
            np.moveaxis(x.array, d, 0)
            if isinstance(x.array, np.ndarray)
            else x.array.transpose((d, *(i for i in range(x.array.ndim) if i != d)))
        )
        example = operator.make_tensor(array[0].copy())
        if x.node is not None:
            example = tracked_copy(example)
        recording.input(f"input_{k}", example)
        recording.examples.append(example)
        examples.append(example)
    try:
        with switch_mode(recording=recording):
            results, rebuild = flatten(one(examples))
            named = {f"output_{k}": check_result(y) for k, y in enumerate(results)}
            for name, y in named.items():
                if recording.value(y) in recording.graph.constants:
                    named[name] = OPS["Identity"](y)
            recording.finish(named)
        cut = [recording.cut(y) for y in results]
    except RecordError:
        raise NotBatchable from None
    finally:
        recording.forget()
    return recording, cut, rebuild, random.default_generator.counter is not before
