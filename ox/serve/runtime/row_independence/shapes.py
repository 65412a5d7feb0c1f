"""Sizes as data, and tensors made from sizes."""

from __future__ import annotations

import numpy as np

from ox.serve.runtime.row_independence.layout import filled_with
from ox.serve.runtime.row_independence.node import MAX_INTEGERS, Node, rule
from ox.serve.runtime.row_independence.size import B, batch_factor, has_batch, is_count, is_exact, product
from ox.serve.runtime.row_independence.state import UNKNOWN, Mixes, Tensor, constant


@rule("Shape", counts=True, places=True, columns=True)
def shape(node: Node) -> Tensor:
    x = node[0]
    if x.dims is None:
        return UNKNOWN
    start, end = node.integer("start", 0), node.integer("end", x.rank)
    array = np.empty(len(x.sizes), object)
    array[:] = x.sizes
    return constant(array[slice(start, end)])


@rule("Size", counts=True, places=True, columns=True)
def size(node: Node) -> Tensor:
    return UNKNOWN if node[0].dims is None else constant(product(node[0].sizes))


@rule("ConstantOfShape", counts=True)
def constant_of_shape(node: Node) -> Tensor:
    sizes = node.elements(0)
    if sizes is None:
        return UNKNOWN
    carriers = [axis for axis, size in enumerate(sizes) if has_batch(size)]
    if carriers:
        carrier = sizes[carriers[0]]
        if len(carriers) > 1 or batch_factor(carrier) is None or not is_count(carrier):
            raise Mixes("makes something whose size follows from the number of rows")
        return Tensor(tuple(size if is_count(size) else node.symbols.fresh() for size in sizes), carriers[0])
    value = node.attribute("value")
    integers = None if value is None else node.walker.constant(value.t).integers
    if integers is not None and (filled := filled_with(sizes, integers.ravel()[0])) is not None:
        return filled
    return Tensor(tuple(size if is_count(size) else node.symbols.fresh() for size in sizes))


@rule("Range", counts=True)
def range_(node: Node) -> Tensor:
    start, limit, delta = ((node.elements(index) or [node.symbols.fresh()])[0] for index in range(3))
    if any(map(has_batch, (start, limit, delta))):
        if (start, limit, delta) != (0, B, 1):
            raise Mixes("counts the rows")
        return Tensor((B,), 0, 1, None, True)
    if isinstance(start, int) and isinstance(limit, int) and isinstance(delta, int) and delta:
        numbers = range(start, limit, delta)
        return constant(list(numbers)) if len(numbers) <= MAX_INTEGERS else Tensor((len(numbers),))
    if start == 0 and delta == 1 and is_count(limit) and is_exact(limit):
        return Tensor((limit,))
    if not all(map(is_exact, (start, limit, delta))):
        return Tensor((node.symbols.fresh(),))
    return Tensor((node.symbols.of(("range", start, limit, delta)),))
