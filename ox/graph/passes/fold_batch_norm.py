"""Batch norms in eval mode become part of the product before them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ox.dtypes import is_floating
from ox.graph.ir import Array, Graph, Node, Value

# Those of which `along_outputs` knows the layout of the weight.
PRODUCTS = frozenset(("Conv", "ConvTranspose", "Gemm"))


def fold_batch_norms(graph: Graph) -> bool:
    """Scale the weights and move the bias of each Conv, ConvTranspose and Gemm whose only reader is a
    BatchNormalization in eval mode, and drop that. Whether any was folded.

    Within `ox.tolerance`: a rounding moves. The weight keeps its name; a bias that was not there is named after it
    (``conv.weight`` gives ``conv.bias``). Not touched: a weight that others read or that a caller may override, a norm
    in training mode, and everything that is no constant.
    """
    readers = graph.reads()
    producers = graph.producers()
    kept: list[Node] = []
    for node in graph.nodes:
        product = producers.get(node.inputs[0]) if node.key == "BatchNormalization" and node.inputs[0] else None
        if product is None or product.key not in PRODUCTS or not _fold(graph, product, node, readers):
            kept.append(node)
    folded = len(kept) < len(graph.nodes)
    graph.nodes = kept
    return folded


def _fold(graph: Graph, product: Node, norm: Node, readers: Counter[Value | None]) -> bool:
    """Fold one norm, if everything is known."""
    weight, bias = product.inputs[1], product.inputs[2] if len(product.inputs) > 2 else None
    parts = [weight, *norm.inputs[1:5], *([bias] if bias is not None else [])]
    if norm.attributes.get("training_mode") or len(norm.outputs) > 1 or readers[product.outputs[0]] > 1:
        return False
    if any(v is None or v not in graph.constants or v in graph.overridable for v in parts):
        return False
    if readers[weight] > 1 or (bias is not None and readers[bias] > 1):
        return False
    assert weight is not None
    w, scale, shift, mean, var, *given = (graph.constants[v].astype(np.float64) for v in parts if v is not None)
    before = given[0] if given else np.zeros(())
    if product.key == "Gemm":
        before = before * product.attributes.get("beta", 1.0)
        if before.size not in (1, scale.size):
            return False
    factor = scale / np.sqrt(var + norm.attributes.get("epsilon", 1e-5))
    moved = (before.reshape(-1) - mean) * factor + shift
    w = w * along_outputs(product, w, factor)
    dtype = graph.constants[weight].dtype
    if not is_floating(dtype) or not (np.isfinite(w).all() and np.isfinite(moved).all()):
        return False
    graph.constants[weight] = w.astype(dtype)
    product.inputs = [product.inputs[0], weight, _bias(graph, weight, bias, moved.astype(dtype))]
    if product.key == "Gemm":
        product.attributes = {**product.attributes, "beta": 1.0}
    product.outputs = norm.outputs
    return True


def along_outputs(product: Node, weight: Array, factor: Array) -> Array:
    """The factor of each output channel in the layout of the weight."""
    if product.key == "Conv":
        return factor.reshape(-1, *[1] * (weight.ndim - 1))
    if product.key == "Gemm":
        return factor.reshape(-1, 1) if product.attributes.get("transB") else factor
    groups = product.attributes.get("group", 1)  # [inputs, outputs of a group, ...]
    rows = np.repeat(factor.reshape(groups, -1), weight.shape[0] // groups, axis=0)
    return rows.reshape(*weight.shape[:2], *[1] * (weight.ndim - 2))


def _bias(graph: Graph, weight: Value, bias: Value | None, array: Array) -> Value:
    """The value of the new bias."""
    if bias is None or bias.shape != array.shape:
        stem = weight.name.removesuffix("weight")
        name = f"{stem}bias" if stem != weight.name else f"{weight.name}.bias"
        taken = {v.name for v in graph.values()} - ({bias.name} if bias is not None else set())
        while name in taken:
            name += "_folded"
        bias = Value(name, array.dtype, array.shape, array.shape)
        if weight in graph.owned:
            graph.owned.add(bias)
    graph.constants[bias] = array
    return bias
