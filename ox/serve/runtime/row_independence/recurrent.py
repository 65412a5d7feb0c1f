"""Recurrent operators and attention."""

from __future__ import annotations

from collections.abc import Sequence

from ox.serve.runtime.row_independence.node import CONTRIB, Node, rule, same_rows
from ox.serve.runtime.row_independence.size import Size
from ox.serve.runtime.row_independence.state import Mixes, State, Tensor


def _rows(lead: Tensor, dims: Sequence[Size], axis: int) -> Tensor:
    """The rows of `lead` in new sizes, of which the one on `axis` does not count."""
    return Tensor((*dims[:axis], lead.sizes[lead.axis or 0], *dims[axis + 1 :]), axis, lead.outer)


@rule("RNN", "GRU", "LSTM")
def recurrent(node: Node) -> Sequence[State]:
    """The batch is the second axis, or the first in layout 1; lengths and initial states have it, too."""
    axis = 0 if node.integer("layout", 0) else 1
    x = node[0]
    states = {4: 0, 5: axis, 6: axis} if node.op == "LSTM" else {4: 0, 5: axis}
    node.fixed(1, 2, 3, 7)
    if not any(tensor.varies for tensor in node.given):
        return [Tensor(tuple(node.symbols.fresh() for _ in range(rank))) for rank in (4, 3, 3)][: node.count]
    if x.axis != axis:
        raise Mixes("the rows lie on an axis over which it works")
    for index, place in states.items():
        tensor = node.get(index)
        if tensor is None:
            continue
        if tensor.axis != place or tensor.outer != x.outer or tensor.sizes[place] != x.sizes[axis]:
            raise Mixes(f"its input '{node.proto.input[index]}' is not there once for each row")
    found = node.attribute("hidden_size")
    hidden: Size = node.symbols.fresh() if found is None else int(found.i)
    directions = 2 if node.text("direction", "forward") == "bidirectional" else 1
    time, last = x.sizes[1 - axis], _rows(x, (1, directions, hidden) if axis == 0 else (directions, 1, hidden), axis)
    if axis == 0:
        whole = _rows(x, (1, time, directions, hidden), 0)
    else:
        whole = _rows(x, (time, directions, 1, hidden), 2)
    return [whole, last, last][: node.count]


@rule("Attention")
def attention(node: Node) -> Sequence[State]:
    """Each of the first axis attends to itself."""
    q = node[0]
    if not any(tensor.varies for tensor in node.given):
        return [Tensor(q.dims and tuple(node.symbols.fresh() for _ in q.dims))] * node.count
    lead = same_rows(_less(node, 3), 0, 1, 2, 4, 5, 6)
    mask = node.get(3)
    if mask is not None:
        if mask.axis is not None and (mask.axis != 0 or mask.rank != 4 or mask.outer != lead.outer):
            raise Mixes("has a mask that does not follow the rows")
        if mask.axis is not None and mask.sizes[0] != lead.sizes[0]:
            raise Mixes("has a mask that does not follow the rows")
        if mask.axis is None and (mask.rank > 4 or (mask.rank == 4 and mask.sizes[0] != 1)):
            raise Mixes("has a mask that does not follow the rows")
    value = node[2]
    last: Size = node.symbols.fresh()
    if q.rank == 4:
        last = value.sizes[3]
    elif q.rank == 3 and isinstance(value.sizes[2], int):
        heads = (node.integer("q_num_heads", 0), node.integer("kv_num_heads", 0))
        if heads[0] > 0 and heads[1] > 0 and value.sizes[2] % heads[1] == 0:
            last = value.sizes[2] // heads[1] * heads[0]
    wide = [_rows(lead, [node.symbols.fresh() for _ in range(4)], 0) for _ in range(3)]
    return [_rows(lead, [*q.sizes[:-1], last], 0), *wide][: node.count]


@rule("LinearAttention")
def linear_attention(node: Node) -> Sequence[State]:
    if not any(tensor.varies for tensor in node.given):
        return [Tensor(None)] * node.count
    lead = same_rows(node, 0, 1, 2, 3, 4, 5)
    return [
        _rows(lead, [1, node[0].sizes[1], node.symbols.fresh()], 0),
        _rows(lead, [node.symbols.fresh() for _ in range(4)], 0),
    ][: node.count]


@rule("CausalConvWithState")
def causal_conv(node: Node) -> Sequence[State]:
    if not any(tensor.varies for tensor in node.given):
        return [Tensor(None)] * node.count
    lead = same_rows(node, 0, 3)
    return [_rows(lead, node[0].sizes, 0), _rows(lead, [node.symbols.fresh() for _ in range(3)], 0)][: node.count]


@rule("RotaryEmbedding")
def rotary(node: Node) -> Tensor:
    """Caches are constants and positions rows, or caches are rows without positions."""
    return _rotated(node, (1, 2), 3)


@rule("RotaryEmbedding", domain=CONTRIB)
def contrib_rotary(node: Node) -> Tensor:
    return _rotated(node, (2, 3), 1)


def _rotated(node: Node, caches: tuple[int, int], positions: int) -> Tensor:
    x = node[0]
    if not any(tensor.varies for tensor in node.given):
        return x.with_dims(x.sizes)
    if node.has(positions):
        node.fixed(*caches)
        place = node[positions]
        if place.axis is None and (place.rank == 0 or (place.rank == 1 and place.sizes[0] == 1)):
            same_rows(_less(node, positions), 0)  # one offset for all rows
        else:
            same_rows(node, 0, positions)
    elif node[caches[0]].varies or node[caches[1]].varies:
        same_rows(node, 0, *caches)
    else:
        raise Mixes("has no positions, and caches that are not there once for each row")
    return x.with_dims(x.sizes)


def _less(node: Node, index: int) -> Node:
    inputs = [None if place == index else tensor for place, tensor in enumerate(node.inputs)]
    return Node(node.proto, node.version, inputs, node.outside, node.walker, node.scope)
