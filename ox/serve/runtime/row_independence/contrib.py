"""Operators of com.microsoft, as ONNX Runtime's optimizer and quantizer write them into files."""

from __future__ import annotations

from collections.abc import Sequence

from ox.serve.runtime.row_independence.matrix import product_of, single
from ox.serve.runtime.row_independence.node import CONTRIB, RULES, Node, axis_of, rule, same_rows
from ox.serve.runtime.row_independence.reduction import layer_normalization
from ox.serve.runtime.row_independence.size import Size
from ox.serve.runtime.row_independence.state import Mixes, State, Tensor, broadcast
from ox.serve.runtime.row_independence.vision import conv


@rule("Gelu", "FastGelu", "QuickGelu", "BiasGelu", domain=CONTRIB)
def pointwise(node: Node) -> Tensor:
    return broadcast(node.given, node.symbols)


@rule("CDist", domain=CONTRIB)
def distances(node: Node) -> Tensor:
    """From each row of the first to each row of the second."""
    a, b = node[0], node[1]
    if b.varies or a.axis not in (None, 0):
        raise Mixes("compares rows with other rows")
    return a.with_dims([a.sizes[0], b.sizes[0]])


@rule("FusedConv", domain=CONTRIB)
def fused_conv(node: Node) -> Tensor:
    result = conv(_first(node, 3))
    if (added := node.get(3)) is not None and (added.axis, added.outer) != (result.axis, result.outer):
        raise Mixes("adds something that is not there once for each row")
    return result


def _first(node: Node, count: int) -> Node:
    return Node(node.proto, node.version, node.inputs[:count], node.outside, node.walker, node.scope)


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=CONTRIB)
def skip_layer_normalization(node: Node) -> Sequence[State]:
    """Adds up, then normalizes the last axis."""
    summed = broadcast([node[0], node[1]], node.symbols)
    if summed.axis == summed.rank - 1:
        raise Mixes("normalizes over the batch axis")
    for index in range(2, len(node.inputs)):
        node.fixed(index)
        if (weight := node.get(index)) is not None and weight.rank != 1:
            raise Mixes("has weights for each row")
    small = summed.with_dims([*summed.sizes[:-1], 1])
    return [summed, small, small, summed][: node.count]


@rule("SimplifiedLayerNormalization", "LayerNormalization", domain=CONTRIB)
def simplified_layer_normalization(node: Node) -> Sequence[Tensor]:
    return layer_normalization(node)


RULES["", "SimplifiedLayerNormalization"] = layer_normalization  # files of the optimizer name no domain


@rule("EmbedLayerNormalization", domain=CONTRIB)
def embed(node: Node) -> Sequence[State]:
    """Tokens, segments and positions in; weights are constants."""
    ids = node[0]
    for index, tensor in enumerate(node.inputs):
        if tensor is None or index in (0, 1, 7, 8):
            continue
        node.fixed(index)
    lead = same_rows(_only(node, (0, 1, 7)), 0, 1, 7)
    if (positions := node.get(8)) is not None and positions.axis is not None:
        raise Mixes("has positions that depend on the rows")
    wide = node[2].sizes[1]
    whole = Tensor((lead.sizes[0], ids.sizes[1], wide), 0, lead.outer)
    return [whole, Tensor((lead.sizes[0],), 0, lead.outer), whole][: node.count]


def _only(node: Node, indices: Sequence[int]) -> Node:
    inputs = [tensor if index in indices else None for index, tensor in enumerate(node.inputs)]
    return Node(node.proto, node.version, inputs, node.outside, node.walker, node.scope)


@rule("MultiHeadAttention", domain=CONTRIB)
def multi_head_attention(node: Node) -> Sequence[State]:
    return _attention(node, (0, 1, 2, 4, 6, 7), (3,), 5)


@rule("Attention", "QAttention", domain=CONTRIB)
def attention(node: Node) -> Sequence[State]:
    if node.op == "QAttention":
        single(node, 3, 6)
        return _attention(node, (0, 5, 8), (1, 2, 3, 4, 6, 7), None)
    return _attention(node, (0, 3, 4), (1, 2), 5)


def _attention(node: Node, rows: Sequence[int], constants: Sequence[int], bias: int | None) -> Sequence[State]:
    """Rows on the first axis; of past states on the second where there are keys and values in one."""
    node.fixed(*constants)
    for index in range(len(node.inputs)):
        if node.has(index) and index not in rows and index not in constants and index != bias:
            raise Mixes(f"its input '{node.proto.input[index]}' is not followed")
    added = None if bias is None else node.get(bias)
    if added is not None and (added.axis is not None or (added.rank == 4 and added.sizes[0] != 1)):
        raise Mixes("has a bias that does not follow the rows")
    lead = same_rows(_only(node, rows), *rows)
    q = node[0]
    if q.rank != 3:
        raise Mixes("its query has another rank")
    dims: list[Size] = [lead.sizes[0], q.sizes[1], node.symbols.fresh()]
    if node.op == "MultiHeadAttention" and node.has(2) and node[2].rank == 3:
        dims[2] = node[2].sizes[2]
    elif node.op != "MultiHeadAttention" and not node.ints("qkv_hidden_sizes"):
        wide = node[1].sizes[1]
        dims[2] = wide // 3 if isinstance(wide, int) else dims[2]
    more = Tensor((lead.sizes[0], *[node.symbols.fresh() for _ in range(3)]), 0, lead.outer)
    if node.count > 1 and node.op != "MultiHeadAttention":
        raise Mixes("gives keys and values with the rows behind another axis")
    return [Tensor(tuple(dims), 0, lead.outer), more, more][: node.count]


@rule("QLinearAdd", "QLinearMul", domain=CONTRIB)
def qlinear_pair(node: Node) -> Tensor:
    single(node, 1, 2, 4, 5, 6, 7)
    return broadcast([node[0], node[3]], node.symbols)


@rule("QLinearSigmoid", "QLinearLeakyRelu", domain=CONTRIB)
def qlinear_pointwise(node: Node) -> Tensor:
    single(node, 1, 2, 3, 4)
    return node[0].with_dims(node[0].sizes)


@rule("QLinearSoftmax", domain=CONTRIB)
def qlinear_softmax(node: Node) -> Tensor:
    single(node, 1, 2, 3, 4)
    x = node[0]
    axis = axis_of(node.integer("axis", -1), x.rank)
    if x.axis is not None and (x.axis == axis or (node.integer("opset", 13) < 13 and axis < x.axis)):
        raise Mixes("works along the batch axis")
    return x.with_dims(x.sizes)


@rule("QLinearGlobalAveragePool", domain=CONTRIB)
def qlinear_global_pool(node: Node) -> Tensor:
    single(node, 1, 2, 3, 4)
    x = node[0]
    if x.axis not in (None, 0) or node.integer("channels_last", 0):
        raise Mixes("the rows lie on an axis over which it works")
    return x.with_dims([*x.sizes[:2], *[1] * (x.rank - 2)])


@rule("MatMulIntegerToFloat", domain=CONTRIB)
def matmul_integer_to_float(node: Node) -> Tensor:
    """Scales and zero points behind the two factors, then a bias."""
    node.fixed(2, 3, 4, 5)
    pairs = ((0, (2, 4)), (1, (3, 5)))
    for factor, indices in pairs:
        if node[factor].axis is not None:
            single(node, *indices)
    result = product_of(node, node[0], node[1])
    return result if node.get(6) is None else broadcast([result, node[6]], node.symbols)


@rule("MatMulNBits", "MatMulBnb4", "MatMulFpQ4", domain=CONTRIB)
def matmul_packed(node: Node) -> Tensor:
    """Weights of few bits: N by K, packed."""
    node.fixed(*range(1, len(node.inputs)))
    a = node[0]
    if a.axis == a.rank - 1:
        raise Mixes("multiplies over the batch axis")
    return a.with_dims([*a.sizes[:-1], node.integer("N", 0) or node.symbols.fresh()])


@rule("BiasSoftmax", domain=CONTRIB)
def bias_softmax(node: Node) -> Tensor:
    x = broadcast([node[0], node[1]], node.symbols)
    axis = axis_of(node.integer("axis", 1), x.rank)
    if x.axis is not None and x.axis >= axis:
        raise Mixes("works along the batch axis")
    if node[1].axis is not None and not node.integer("is_inner_broadcast", 1):
        raise Mixes("rows meet other rows")
    return x


@rule("BiasAdd", "BiasSplitGelu", domain=CONTRIB)
def bias(node: Node) -> Tensor:
    node.fixed(1)
    x = node[0]
    if x.axis == x.rank - 1:
        raise Mixes("has weights for each row")
    dims = list(x.sizes)
    if node.op == "BiasSplitGelu":
        dims[-1] = node.symbols.fresh()
    return x.with_dims(dims)
