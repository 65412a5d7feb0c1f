"""A product with one number for each feature becomes part of the linear layer or convolution before it."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ox.dtypes import is_floating
from ox.graph.ir import Array, Graph, Node, Value
from ox.graph.passes.fold_batch_norm import along_outputs
from ox.graph.passes.size_analysis import analyze_sizes
from ox.graph.passes.symbolic_sizes import Known, SymbolicSizes
from ox.graph.passes.walk import Walk


def fold_scales(graph: Graph, known: Known) -> bool:
    """Scale the weight and the bias of each Gemm (also through a Reshape that keeps its features last) and Conv whose
    result is only read by a Mul with a constant, and drop that. Whether any was folded.

    LayerScale of vision transformers is such a Mul. Within `ox.tolerance`: a rounding moves. Not touched: a weight that
    others read or that a caller may override, and everything that is no constant.

    Args:
        known: inferred sizes by the names of values.
    """
    found = analyze_sizes(graph, known)
    readers = graph.reads()
    walk = Walk(graph)
    for node in walk:
        for value, factor in (node.inputs, node.inputs[::-1]) if node.key == "Mul" else ():
            product = _product(value, walk, readers, found)
            if product is not None and value is not None and _fold(graph, product, factor, readers):
                walk.stand_for(node, [value])
                break
        else:
            walk.keep(node)
    return walk.changed


def _product(value: Value | None, walk: Walk, readers: Counter[Value | None], found: SymbolicSizes) -> Node | None:
    """The product that nothing but a Mul reads the result of, and a Reshape before that."""
    made = walk.maker(value)
    if made is None or readers[value] > 1 or value is None or value.shape is None:
        return None
    if made.key == "Conv":
        return made
    if made.key == "Reshape":
        inner, before, after = walk.maker(made.inputs[0]), found.of(made.inputs[0]), found.of(value)
        if inner is None or inner.key != "Gemm" or readers[made.inputs[0]] > 1:
            return None
        return inner if before and after and before[-1] == after[-1] else None
    return made if made.key == "Gemm" else None


def _fold(graph: Graph, product: Node, factor: Value | None, readers: Counter[Value | None]) -> bool:
    """Scale what is constant and read here alone; else nothing."""
    parts = [v for v in product.inputs[1:3] if v is not None]
    if factor is None or any(v not in graph.constants or v in graph.overridable for v in [*parts, factor]):
        return False
    if any(readers[v] > 1 for v in parts):
        return False
    weight, *bias = (graph.constants[v] for v in parts)
    scale = _by_feature(product, graph.constants[factor])
    if scale is None or not is_floating(weight.dtype) or any(b.size not in (1, scale.size) for b in bias):
        return False
    scaled = [weight * along_outputs(product, weight, scale), *(b.reshape(-1) * scale for b in bias)]
    if not all(np.isfinite(array).all() for array in scaled):
        return False
    for v, array in zip(parts, scaled, strict=True):
        graph.constants[v] = array.astype(weight.dtype)
        v.shape = v.dims = array.shape
    return True


def _by_feature(product: Node, factor: Array) -> Array | None:
    """One number for each output feature of the product; None where the factor differs along another axis."""
    shape = product.outputs[0].shape
    if shape is None:
        return None
    axis = 1 if product.key == "Conv" else len(shape) - 1
    after = len(shape) - 1 - axis  # axes of a result behind its features
    count = shape[axis]
    if factor.size == 1 and factor.ndim < 2:
        return np.full(count, factor.reshape(()))
    if factor.ndim <= after or factor.size != count or factor.shape[factor.ndim - 1 - after] != count:
        return None
    return factor.reshape(-1)
