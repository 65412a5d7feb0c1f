"""For each operator how it is called when some of its inputs have a dimension of examples in front."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ox.core.broadcast import expand_to, reshape_to
from ox.core.constants import axes_tensor, integer
from ox.core.operator import OPS
from ox.core.promotion import cast
from ox.dtypes import int64
from ox.functions.creation import arange


class NotBatchable(Exception):
    """An operator cannot be called once for all examples."""


@dataclass
class Item:
    """A value: the tensor, whether its first dimension are the examples, and its shape in one example."""

    tensor: Any
    batched: bool
    shape: Any

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class Batch:
    """One call: operator, inputs, attributes, shapes of the outputs in one example, how many examples."""

    op: Any
    inputs: list[Item | None]
    attributes: dict[str, Any]
    shapes: list[Any]
    count: Any

    def run(self, *tensors: Any, **attributes: Any) -> Any:
        return self.op(*tensors, outputs=len(self.shapes), **{**self.attributes, **attributes})

    def tensor(self, i: int) -> Any:
        """An input that is the same for all examples, or is left out. Raises Cannot when it differs."""
        if i >= len(self.inputs) or self.inputs[i] is None:
            return None
        item = self.inputs[i]
        assert item is not None
        if item.batched:
            raise NotBatchable
        return item.tensor

    def numbers(self, i: int) -> list[int] | None:
        """A host input that is known."""
        given = self.tensor(i)
        return None if given is None else [int(v) for v in np.asarray(given.array).ravel()]

    def aligned(self, item: Item | None, rank: int) -> Any:
        """The tensor with as many dimensions of an example as `rank`, if it has the one of examples."""
        if item is None or not item.batched or item.rank >= rank:
            return None if item is None else item.tensor
        return OPS["Unsqueeze"](item.tensor, axes_tensor(range(1, 1 + rank - item.rank)))

    def spread(self, i: int) -> Any:
        """The tensor with a dimension of examples, whether or not it had one."""
        item = self.inputs[i]
        assert item is not None
        if item.batched:
            return item.tensor
        return expand_to(OPS["Unsqueeze"](item.tensor, axes_tensor([0])), [self.count, *item.tensor.shape])

    @property
    def first(self) -> Item:
        """The first input, which must be the only one that differs from example to example."""
        for i in range(1, len(self.inputs)):
            self.tensor(i)
        assert self.inputs[0] is not None
        return self.inputs[0]


def _axis(axis: int, rank: int) -> int:
    """An axis of an example as one of all."""
    return axis % rank + 1 if rank else 1


def _pointwise(b: Batch) -> Any:
    rank = max(x.rank for x in b.inputs if x is not None)
    return b.run(*[b.aligned(x, rank) for x in b.inputs])


def _along(b: Batch) -> Any:
    """An attribute names the axis."""
    x = b.first
    if not x.rank:
        raise NotBatchable
    return b.run(x.tensor, *[b.tensor(i) for i in range(1, len(b.inputs))], axis=_axis(b.attributes["axis"], x.rank))


def _reduce(b: Batch) -> Any:
    x = b.first
    axes = b.numbers(1)
    if not axes:
        if b.attributes["noop_with_empty_axes"]:
            return b.run(x.tensor)
        axes = list(range(x.rank))
    if not axes:
        return b.run(OPS["Unsqueeze"](x.tensor, axes_tensor([1])), axes_tensor([1]), keepdims=0)
    return b.run(x.tensor, axes_tensor([_axis(a, x.rank) for a in axes]))


def _extreme(b: Batch) -> Any:
    x = b.first
    if not x.rank:
        raise NotBatchable
    return b.run(x.tensor, axis=_axis(b.attributes["axis"], x.rank))


def _running(b: Batch) -> Any:
    x = b.first
    axis = b.numbers(1)
    assert axis is not None
    return b.run(x.tensor, integer(_axis(axis[0], x.rank)))


def _matmul(b: Batch) -> Any:
    left, right = b.inputs
    assert left is not None and right is not None
    a, c = left.tensor, right.tensor
    row, column = left.rank == 1, right.rank == 1
    if row:
        a = OPS["Unsqueeze"](a, axes_tensor([-2]))
    if column:
        c = OPS["Unsqueeze"](c, axes_tensor([-1]))
    rank = max(left.rank + row, right.rank + column)
    a = b.aligned(Item(a, left.batched, [1] * (left.rank + row)), rank)
    c = b.aligned(Item(c, right.batched, [1] * (right.rank + column)), rank)
    y = b.run(a, c)
    gone = [-2] * row + [-1] * column
    return OPS["Squeeze"](y, axes_tensor(gone)) if gone else y


def _gemm(b: Batch) -> Any:
    a, c = (_turned(b.spread(i), b.attributes[name]) for i, name in ((0, "transA"), (1, "transB")))
    y = OPS["MatMul"](a, c)
    if b.attributes["alpha"] != 1:
        y = y * b.attributes["alpha"]
    if len(b.inputs) < 3 or b.inputs[2] is None or not b.attributes["beta"]:
        return y
    bias = b.aligned(b.inputs[2], 2)
    return y + (bias if b.attributes["beta"] == 1 else bias * b.attributes["beta"])


def _turned(x: Any, turn: int) -> Any:
    return OPS["Transpose"](x, perm=[0, 2, 1]) if turn else x


def _transpose(b: Batch) -> Any:
    x = b.first
    perm = b.attributes["perm"]
    perm = range(x.rank)[::-1] if perm is None else perm
    return b.run(x.tensor, perm=[0, *(p + 1 for p in perm)])


def _reshape(b: Batch) -> Any:
    return reshape_to(b.first.tensor, [b.count, *b.shapes[0]])


def _expand(b: Batch) -> Any:
    x = b.first
    return expand_to(b.aligned(x, len(b.shapes[0])), [b.count, *b.shapes[0]])


def _slice(b: Batch) -> Any:
    x = b.first
    starts = b.numbers(1)
    assert starts is not None
    axes = b.numbers(3) or list(range(len(starts)))
    return b.run(x.tensor, b.tensor(1), b.tensor(2), axes_tensor([_axis(a, x.rank) for a in axes]), b.tensor(4))


def _concat(b: Batch) -> Any:
    rank = len(b.shapes[0])
    return b.run(*[b.spread(i) for i in range(len(b.inputs))], axis=_axis(b.attributes["axis"], rank))


def _split(b: Batch) -> Any:
    x = b.first
    return b.run(x.tensor, b.tensor(1), axis=_axis(b.attributes["axis"], x.rank))


def _gather(b: Batch) -> Any:
    data, places = b.inputs
    assert data is not None and places is not None
    axis = b.attributes["axis"] % data.rank
    if not places.batched:
        return b.run(data.tensor, places.tensor, axis=axis + 1)
    if data.batched:
        return _gather_each(b, data, places, axis)
    y = b.run(data.tensor, places.tensor)
    return y if not axis else OPS["Transpose"](y, perm=[axis, *range(axis), *range(axis + 1, y.array.ndim)])


def _gather_each(b: Batch, data: Item, places: Item, axis: int) -> Any:
    """Each example picks from its own: the examples lie one after the other in one dimension."""
    n, rest = data.shape[axis], [*data.shape[:axis], *data.shape[axis + 1 :]]
    others = [i + 1 for i in range(data.rank) if i != axis]
    merged = reshape_to(OPS["Transpose"](data.tensor, perm=[0, axis + 1, *others]), [b.count * n, *rest])
    wanted = cast(places.tensor, int64)
    wanted = OPS["Where"](wanted < 0, wanted + n, wanted)
    begins = arange(b.count) * n
    y = OPS["Gather"](merged, wanted + reshape_to(begins, [b.count, *[1] * places.rank]), axis=0)
    picked = list(range(1, places.rank + 1))
    left = list(range(places.rank + 1, places.rank + 1 + len(rest)))
    return OPS["Transpose"](y, perm=[0, *left[:axis], *picked, *left[axis:]])


def _by_element(b: Batch) -> Any:
    data = b.inputs[0]
    assert data is not None
    return b.run(*[b.spread(i) for i in range(len(b.inputs))], axis=_axis(b.attributes["axis"], data.rank))


def _pad(b: Batch) -> Any:
    x = b.first
    pads = b.numbers(1)
    assert pads is not None
    axes = b.numbers(3)
    axes = list(range(x.rank)) if axes is None else axes
    return b.run(x.tensor, axes_tensor(pads), b.tensor(2), axes_tensor([_axis(a, x.rank) for a in axes]))


def _tile(b: Batch) -> Any:
    repeats = b.numbers(1)
    assert repeats is not None
    return b.run(b.first.tensor, axes_tensor([1, *repeats]))


def _trilu(b: Batch) -> Any:
    return b.run(b.first.tensor, b.tensor(1))


def _images(b: Batch) -> Any:
    """Examples and the images of each in one dimension, for operators that treat image by image."""
    x = b.first
    merged = reshape_to(x.tensor, [b.count * x.shape[0], *x.shape[1:]])
    result = b.run(merged, *[b.tensor(i) for i in range(1, len(b.inputs))])
    several = result if isinstance(result, tuple) else (result,)
    apart = tuple(reshape_to(y, [b.count, *shape]) for y, shape in zip(several, b.shapes, strict=True))
    return apart if isinstance(result, tuple) else apart[0]


def _shared(b: Batch) -> Any:
    raise NotBatchable  # what is the same for all examples needs the operator only


# from definitions (``batching=``): how the dimensions of the inputs appear in the output
FAMILIES: dict[str, Callable[[Batch], Any]] = {
    "pointwise": _pointwise,  # element by element, with broadcasting
    "axis": _along,  # along the axis that an attribute names
    "reduction": _reduce,
    "arg_reduction": _extreme,
    "cumulative": _running,
    "elements": _by_element,  # places along an axis, one for each element
    "reshape": _reshape,
    "images": _images,  # [N, C, ...], image by image
    "shared": _shared,  # of sizes alone
}

# "own": the rules of single operators. "each": no rule, one call an example
OPERATOR_RULES: dict[str, Callable[[Batch], Any]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Transpose": _transpose,
    "Expand": _expand,
    "Slice": _slice,
    "Concat": _concat,
    "Split": _split,
    "Gather": _gather,
    "Pad": _pad,
    "Tile": _tile,
    "Trilu": _trilu,
}


def rule_of(key: str) -> Callable[[Batch], Any] | None:
    """How an operator is called for all examples at once; None where it runs once for each."""
    return OPERATOR_RULES.get(key) or FAMILIES.get(OPS[key].batching or "")
