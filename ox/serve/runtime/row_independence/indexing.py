"""Operators that pick and place elements by their index."""

from __future__ import annotations

from ox.serve.runtime.row_independence.node import Node, axis_of, rule
from ox.serve.runtime.row_independence.size import B, Size, is_exact
from ox.serve.runtime.row_independence.state import UNKNOWN, Mixes, Tensor, constant

PICKS = "picks rows out of the batch"
OWN = "a row's own number becomes data"


def _in_order(tensor: Tensor, axis: int) -> bool:
    """Whether its rows are all that it has on this axis."""
    return tensor.axis == axis and tensor.outer == 1 and tensor.sizes[axis] == B


@rule("Gather", counts=True, places=True)
def gather(node: Node) -> Tensor:
    data, indices = node[0], node[1]
    if data.place or indices.place:
        return _own_rows(node, data, indices)
    if indices.counts:
        raise Mixes("the number of rows becomes data")
    if data.dims is None or indices.dims is None:
        if data.varies or indices.varies:
            raise Mixes("with a tensor whose number of dimensions is not known")
        return UNKNOWN
    axis = axis_of(node.integer("axis", 0), data.rank)
    if data.integers is not None:
        if indices.integers is not None and all(isinstance(value, int) for value in indices.integers.flat):
            return constant(data.integers.take(indices.integers.astype(int), axis))
        if data.counts:
            raise Mixes("the number of rows becomes data")
    dims = (*data.sizes[:axis], *indices.sizes, *data.sizes[axis + 1 :])
    if data.axis is None and indices.axis is None:
        return Tensor(dims)
    if data.axis is None:
        return Tensor(dims, axis + (indices.axis or 0), indices.outer)
    if data.axis == axis:
        raise Mixes(PICKS)
    if indices.axis is not None:
        raise Mixes("picks by the rows of another tensor")
    return Tensor(dims, data.axis + (indices.rank - 1 if data.axis > axis else 0), data.outer)


def _own_rows(node: Node, data: Tensor, indices: Tensor) -> Tensor:
    """Each row by its own number: itself."""
    axis = axis_of(node.integer("axis", 0), data.rank)
    if data.place or data.axis != axis:
        raise Mixes(OWN)
    if not _in_order(data, axis) or not _in_order(indices, 0):
        raise Mixes(PICKS)
    return Tensor((*data.sizes[:axis], *indices.sizes, *data.sizes[axis + 1 :]), axis)


@rule("GatherElements")
def gather_elements(node: Node) -> Tensor:
    data, indices = node[0], node[1]
    axis = axis_of(node.integer("axis", 0), data.rank)
    if data.axis is not None:
        _same(data, indices)
        if data.axis == axis:
            raise Mixes(PICKS)
    elif indices.axis is not None and indices.axis != axis:
        raise Mixes("rows meet a tensor that is not there once for each")
    return indices.with_dims(indices.sizes)


def _same(*tensors: Tensor) -> None:
    lead = tensors[0]
    for tensor in tensors[1:]:
        if (tensor.axis, tensor.outer) != (lead.axis, lead.outer) or tensor.rank != lead.rank:
            raise Mixes("rows meet a tensor that is not there once for each")
        if lead.axis is not None and tensor.sizes[lead.axis] != lead.sizes[lead.axis]:
            raise Mixes("rows meet other rows")


@rule("ScatterElements", "Scatter")
def scatter_elements(node: Node) -> Tensor:
    data = node[0]
    _same(data, node[1], node[2])
    if data.axis is not None and axis_of(node.integer("axis", 0), data.rank) == data.axis:
        raise Mixes("places rows within the batch")
    return data.with_dims(data.sizes)


@rule("GatherND", columns=True)
def gather_nd(node: Node) -> Tensor:
    data, indices, batch = node[0], node[1], node.integer("batch_dims", 0)
    deep = _depth(indices)
    if not 0 <= batch < min(data.rank, indices.rank) or batch + deep > data.rank:
        raise Mixes("its indices do not fit")
    dims = (*indices.sizes[:-1], *data.sizes[batch + deep :])
    if data.column or (indices.column and batch):
        raise Mixes(OWN)
    if indices.column:
        _begins_with_own(data, indices)
        return Tensor(dims, 0)
    if data.axis is None and indices.axis is None:
        return Tensor(dims)
    if indices.axis == indices.rank - 1:
        raise Mixes(PICKS)
    if data.axis is None:
        assert indices.axis is not None
        if indices.axis < batch:
            raise Mixes("rows meet a tensor that is not there once for each")
        return Tensor(dims, indices.axis, indices.outer)
    if indices.axis is not None:
        if data.axis != indices.axis or data.axis >= batch:
            raise Mixes(PICKS)
        _same_rows(data, indices, data.axis)
        return Tensor(dims, data.axis, data.outer)
    if data.axis < batch + deep:
        raise Mixes(PICKS)
    return Tensor(dims, data.axis - batch - deep + indices.rank - 1, data.outer)


def _begins_with_own(data: Tensor, indices: Tensor) -> None:
    """Raises Mixes unless indices that begin with a row's own number lead into that row."""
    if data.axis is None:
        raise Mixes(OWN)
    if not _in_order(data, 0) or not _in_order(indices, 0):
        raise Mixes(PICKS)


def _depth(indices: Tensor) -> int:
    deep = indices.sizes[-1] if indices.rank else None
    if not isinstance(deep, int):
        raise Mixes("its indices are of an unknown length")
    return deep


def _same_rows(one: Tensor, two: Tensor, axis: int) -> None:
    if one.outer != two.outer or one.sizes[axis] != two.sizes[axis]:
        raise Mixes("rows meet other rows")


@rule("ScatterND", columns=True)
def scatter_nd(node: Node) -> Tensor:
    data, indices, updates = node[0], node[1], node[2]
    if not any(tensor.varies for tensor in node.given):
        return Tensor(data.dims)
    deep = _depth(indices)
    if data.axis is None or updates.axis is None:
        raise Mixes("places rows into something that is not there once for each")
    if data.column or updates.column:
        raise Mixes(OWN)
    if indices.column:
        _begins_with_own(data, indices)
        if not _in_order(updates, 0):
            raise Mixes("rows meet other rows")
        return data.with_dims(data.sizes)
    if indices.axis is not None or data.axis < deep:
        raise Mixes("places rows within the batch")
    if updates.axis != data.axis - deep + indices.rank - 1:
        raise Mixes("rows meet other rows")
    if updates.outer != data.outer or updates.sizes[updates.axis] != data.sizes[data.axis]:
        raise Mixes("rows meet other rows")
    return data.with_dims(data.sizes)


@rule("TensorScatter")
def tensor_scatter(node: Node) -> Tensor:
    past, update, where = node[0], node[1], node.get(2)
    if past.axis is None and update.axis is None and (where is None or where.axis is None):
        return Tensor(past.dims)
    if past.axis != 0 or update.axis != 0 or axis_of(node.integer("axis", -2), past.rank) == 0:
        raise Mixes("places rows within the batch")
    _same_rows(past, update, 0)
    if where is not None:
        if where.axis != 0:
            raise Mixes("rows meet a tensor that is not there once for each")
        _same_rows(past, where, 0)
    return past.with_dims(past.sizes)


@rule("OneHot")
def one_hot(node: Node) -> Tensor:
    node.fixed(1, 2)
    indices = node[0]
    rank = indices.rank + 1
    axis = axis_of(node.integer("axis", -1), rank)
    depth: Size = (node.elements(1) or [node.symbols.fresh()])[0]
    depth = depth if is_exact(depth) else node.symbols.fresh()
    dims = (*indices.sizes[:axis], depth, *indices.sizes[axis:])
    place = None if indices.axis is None else indices.axis + (axis <= indices.axis)
    return Tensor(dims, place, indices.outer)


@rule("EyeLike", counts=True)
def eye_like(node: Node) -> Tensor:
    if node[0].varies:
        raise Mixes("marks each row's own number")
    return Tensor(node[0].dims)


@rule("NonZero")
def non_zero(node: Node) -> Tensor:
    if node[0].varies:
        raise Mixes("counts and numbers elements of all rows")
    return Tensor((node[0].rank, node.symbols.fresh()))


@rule("Compress")
def compress(node: Node) -> Tensor:
    node.fixed(1)
    x, axis = node[0], node.attribute("axis")
    if axis is None:
        if x.varies:
            raise Mixes("picks elements of all rows")
        return Tensor((node.symbols.fresh(),))
    along = axis_of(int(axis.i), x.rank)
    if along == x.axis:
        raise Mixes(PICKS)
    return x.with_dims([node.symbols.fresh() if place == along else size for place, size in enumerate(x.sizes)])
