"""Operators along axes: reductions, running sums, sorting, normalizations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ox.serve.runtime.row_independence.node import MIXED, Node, axis_of, rule
from ox.serve.runtime.row_independence.size import NARROW, Size, divide, is_count, is_exact
from ox.serve.runtime.row_independence.state import UNKNOWN, Mixes, State, Tensor, constant

OVER = "works along the batch axis"


@rule(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare", counts=True,
)  # fmt: skip
def reduce(node: Node) -> Tensor:
    x, axes, keep = node[0], node.axes("axes", 1), node.integer("keepdims", 1)
    if axes is None:
        if x.varies:
            raise Mixes("reduces over axes that are not known")
        return UNKNOWN
    if not axes and node.integer("noop_with_empty_axes", 0):
        return x.with_dims(x.sizes)
    if x.dims is None:
        return UNKNOWN if axes or keep else Tensor(())
    if x.integers is not None and node.op in ("ReduceProd", "ReduceSum") and x.rank == 1:
        total = (np.prod if node.op == "ReduceProd" else np.sum)(x.integers)
        if not isinstance(total, int) or abs(total) < NARROW:
            return constant([total] if keep else total)
    if x.counts:
        raise Mixes("the number of rows becomes data")
    return _reduced(x, {axis_of(axis, x.rank) for axis in axes} or set(range(x.rank)), bool(keep))


def _reduced(x: Tensor, gone: set[int], keep: bool) -> Tensor:
    if x.axis in gone:
        raise Mixes("reduces over the batch axis")
    if keep:
        return x.with_dims([1 if axis in gone else size for axis, size in enumerate(x.sizes)])
    kept = [size for axis, size in enumerate(x.sizes) if axis not in gone]
    return x.with_dims(kept, -sum(axis < (x.axis or 0) for axis in gone))


@rule("ArgMax", "ArgMin")
def arg_reduce(node: Node) -> Tensor:
    x = node[0]
    return _reduced(x, {axis_of(node.integer("axis", 0), x.rank)}, bool(node.integer("keepdims", 1)))


@rule("Softmax", "LogSoftmax", "Hardmax")
def softmax(node: Node) -> Tensor:
    x = node[0]
    axis = axis_of(node.integer("axis", -1 if node.version >= 13 else 1), x.rank)
    if x.axis is not None and (axis == x.axis or (node.version < 13 and axis < x.axis)):
        raise Mixes(OVER)
    return x.with_dims(x.sizes)


@rule("CumSum", "CumProd")
def running(node: Node) -> Tensor:
    x, axes = node[0], node.numbers(1)
    if x.axis is not None and (not axes or axis_of(axes[0], x.rank) == x.axis):
        raise Mixes(OVER)
    return x.with_dims(x.sizes)


@rule("LpNormalization")
def lp_normalization(node: Node) -> Tensor:
    x = node[0]
    if x.axis is not None and axis_of(node.integer("axis", -1), x.rank) == x.axis:
        raise Mixes(OVER)
    return x.with_dims(x.sizes)


@rule("TopK")
def top_k(node: Node) -> Sequence[Tensor]:
    x = node[0]
    axis = axis_of(node.integer("axis", -1), x.rank)
    if axis == x.axis:
        raise Mixes(OVER)
    k: Size = node.integer("k", 1)
    if node.has(1):
        node.fixed(1)
        k = (node.elements(1) or [node.symbols.fresh()])[0]
    dims = list(x.sizes)
    dims[axis] = k if is_exact(k) else node.symbols.fresh()
    return [x.with_dims(dims)] * 2


@rule("LayerNormalization", "RMSNormalization")
def layer_normalization(node: Node) -> Sequence[Tensor]:
    node.fixed(1, 2)
    x = node[0]
    axis = axis_of(node.integer("axis", -1), x.rank)
    if x.axis is not None and x.axis >= axis:
        raise Mixes("normalizes over the batch axis")
    _fits_behind(node, axis, 1, 2)
    small = x.with_dims([1 if place >= axis else size for place, size in enumerate(x.sizes)])
    return [x.with_dims(x.sizes), small, small]


def _fits_behind(node: Node, axis: int, *indices: int) -> None:
    """Weights are spread over the axes that are normalized: they must not reach the batch axis."""
    x = node[0]
    for index in indices:
        tensor = node.get(index)
        if x.axis is not None and tensor is not None and tensor.rank > x.rank - x.axis - 1:
            place = x.axis - (x.rank - tensor.rank)
            if tensor.sizes[place] != 1:
                raise Mixes("has weights for each row")


@rule("MeanVarianceNormalization")
def mean_variance_normalization(node: Node) -> Tensor:
    x = node[0]
    axes = node.ints("axes") or [0, 2, 3]
    if x.axis is not None and x.axis in {axis_of(axis, x.rank) for axis in axes}:
        raise Mixes("normalizes over the batch axis")
    return x.with_dims(x.sizes)


@rule("BatchNormalization")
def batch_normalization(node: Node) -> Sequence[State]:
    training = node.integer("training_mode", 0) if node.version >= 14 else node.count > 1
    if training or (node.version < 7 and not node.integer("is_test", 0)):
        raise Mixes("normalizes over the batch axis: it is in training mode")
    node.fixed(1, 2, 3, 4)
    x = node[0]
    if x.axis == 1:
        raise Mixes("has weights for each row")
    return [x.with_dims(x.sizes), *[MIXED] * (node.count - 1)]


@rule("InstanceNormalization", "GroupNormalization", "LRN")
def by_channel(node: Node) -> Tensor:
    """Each of the batch for itself."""
    node.fixed(1, 2)
    x = node[0]
    if x.axis not in (None, 0):
        raise Mixes("normalizes over the batch axis")
    return x.with_dims(x.sizes)


@rule("Trilu")
def trilu(node: Node) -> Tensor:
    node.fixed(1)
    x = node[0]
    if x.axis is not None and x.axis >= x.rank - 2:
        raise Mixes(OVER)
    return x.with_dims(x.sizes)


@rule("Det")
def determinant(node: Node) -> Tensor:
    x = node[0]
    return _reduced(x, {axis_of(-2, x.rank), axis_of(-1, x.rank)}, False)


@rule("DFT")
def dft(node: Node) -> Tensor:
    node.fixed(1, 2)
    x = node[0]
    axes = node.numbers(2) if node.has(2) else [node.integer("axis", 1 if node.version < 20 else -2)]
    if not axes:
        raise Mixes("along an axis that is not known")
    axis = axis_of(axes[0], x.rank)
    if x.axis is not None and x.axis in (axis, x.rank - 1):
        raise Mixes(OVER)
    dims = list(x.sizes)
    dims[axis], dims[-1] = node.symbols.fresh(), 1 if node.integer("inverse", 0) and node.integer("onesided", 0) else 2
    return x.with_dims(dims)


@rule("SplitToSequence", "SequenceConstruct")
def sequence(node: Node) -> State:
    if any(tensor.varies for tensor in node.given):
        raise Mixes("sequences of tensors are not followed")
    return UNKNOWN


@rule("CenterCropPad")
def center_crop_pad(node: Node) -> Tensor:
    x, shape = node[0], node.elements(1)
    axes = [axis_of(axis, x.rank) for axis in node.ints("axes") or range(x.rank)]
    if x.axis in axes or shape is None or len(shape) != len(axes):
        raise Mixes("cuts or fills the batch axis")
    dims = list(x.sizes)
    for axis, size in zip(axes, shape, strict=True):
        dims[axis] = size if is_exact(size) else node.symbols.fresh()
    return x.with_dims(dims)


@rule("Pad")
def pad(node: Node) -> Tensor:
    x = node[0]
    node.fixed(2)
    amounts = node.ints("pads")
    values = list[Size](amounts) if amounts is not None else node.elements(1)
    axes = [axis_of(axis, x.rank) for axis in (node.numbers(3) or [])] if node.has(3) else list(range(x.rank))
    if values is None or len(values) != 2 * len(axes):
        raise Mixes("fills axes that are not known")
    before, after = values[: len(axes)], values[len(axes) :]
    dims = list(x.sizes)
    for axis, first, last in zip(axes, before, after, strict=True):
        if axis == x.axis and (first != 0 or last != 0):
            raise Mixes("fills the batch axis")
        added = first + last
        wide = dims[axis] + added
        dims[axis] = wide if isinstance(added, int) and is_count(wide) else node.symbols.of(("pad", wide))
    return x.with_dims(dims)


@rule("ReverseSequence")
def reverse_sequence(node: Node) -> Tensor:
    x, lengths = node[0], node[1]
    batch, time = node.integer("batch_axis", 1), node.integer("time_axis", 0)
    if x.axis is None and lengths.axis is None:
        return x.with_dims(x.sizes)
    if time == x.axis or batch != x.axis or lengths.axis != 0 or lengths.sizes[0] != x.sizes[x.axis]:
        raise Mixes("turns round the batch axis")
    if lengths.outer != x.outer:
        raise Mixes("rows meet other rows")
    return x.with_dims(x.sizes)


@rule("DepthToSpace", "SpaceToDepth")
def depth_to_space(node: Node) -> Tensor:
    x, block = node[0], node.integer("blocksize", 1)
    if x.axis not in (None, 0):
        raise Mixes("moves elements from one row to another")
    wide, deep = (block, 1) if node.op == "DepthToSpace" else (1, block)
    batch, channels, *spatial = x.sizes
    parts = [divide(channels * deep * deep, wide * wide), *(divide(size * wide, deep) for size in spatial)]
    return x.with_dims([batch, *(node.symbols.fresh() if part is None else part for part in parts)])
