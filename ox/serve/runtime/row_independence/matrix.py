"""Products of matrices, and Einsum."""

from __future__ import annotations

from collections.abc import Sequence

from ox.serve.runtime.row_independence.node import CONTRIB, Node, rule
from ox.serve.runtime.row_independence.size import Size, has_batch
from ox.serve.runtime.row_independence.state import UNKNOWN, Mixes, Tensor, broadcast

CONTRACTED = "multiplies over the batch axis"


def product_of(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """MatMul, NumPy's way."""
    if a.dims is None or b.dims is None:
        if a.varies or b.varies:
            raise Mixes("with a tensor whose number of dimensions is not known")
        return UNKNOWN
    if not a.rank or not b.rank:
        raise Mixes("a factor has no dimensions")
    one, two = a.rank == 1, b.rank == 1
    if one:
        a = a.with_dims((1, *a.sizes), 1)
    if two:
        b = b.with_dims((*b.sizes, 1))
    if a.axis == a.rank - 1 or b.axis == b.rank - 2:
        raise Mixes(CONTRACTED)
    stacks = [_stack(a), _stack(b)]
    in_rows, in_columns = a.axis == a.rank - 2, b.axis == b.rank - 1
    if (in_rows or in_columns) and a.axis is not None and b.axis is not None:
        raise Mixes("multiplies rows by other rows")
    stack = broadcast(stacks, node.symbols)
    dims = [*stack.sizes, a.sizes[-2], b.sizes[-1]]
    axis, outer = stack.axis, stack.outer
    if in_rows:
        axis, outer = len(dims) - 2, a.outer
    elif in_columns:
        axis, outer = len(dims) - 1, b.outer
    if one:
        del dims[-2]
        axis = None if axis is None else axis - (axis > len(dims) - 1)
    if two:
        del dims[-1]
    return Tensor(tuple(dims), axis, outer)


def _stack(x: Tensor) -> Tensor:
    """Its axes before the matrix."""
    inside = x.axis is not None and x.axis < x.rank - 2
    return Tensor(x.sizes[:-2], x.axis if inside else None, x.outer if inside else 1)


def single(node: Node, *indices: int) -> None:
    """Raises Mixes where one of these inputs is more than one number for all rows."""
    node.fixed(*indices)
    for index in indices:
        tensor = node.get(index)
        if tensor is not None and any(size != 1 for size in tensor.sizes):
            raise Mixes(f"its input '{node.proto.input[index]}' may be there for each row")


@rule("MatMul")
def matmul(node: Node) -> Tensor:
    return product_of(node, node[0], node[1])


@rule("MatMulInteger")
def matmul_integer(node: Node) -> Tensor:
    _zero_points(node, (0, 2), (1, 3))
    return product_of(node, node[0], node[1])


@rule("QLinearMatMul")
def qlinear_matmul(node: Node) -> Tensor:
    _zero_points(node, (0, 1), (0, 2), (3, 4), (3, 5))
    single(node, 6, 7)
    return product_of(node, node[0], node[3])


def _zero_points(node: Node, *pairs: tuple[int, int]) -> None:
    """Scales and zero points: constants, and one number for what carries the rows."""
    for tensor, index in pairs:
        node.fixed(index)
        if node[tensor].axis is not None:
            single(node, index)


@rule("Gemm", counts=False)
def gemm(node: Node) -> Tensor:
    return general_product(node, node.integer("transA", 0), node.integer("transB", 0))


def general_product(node: Node, first: int, second: int) -> Tensor:
    a, b = (_turned(tensor) if turn else tensor for tensor, turn in ((node[0], first), (node[1], second)))
    result = product_of(node, a, b)
    if (c := node.get(2)) is None:
        return result
    added = broadcast([result, c], node.symbols)
    if added.axis != result.axis:
        raise Mixes("adds rows to something that has none")
    return result


def _turned(x: Tensor) -> Tensor:
    if x.rank != 2:
        raise Mixes("a factor is no matrix")
    return Tensor(x.sizes[::-1], None if x.axis is None else 1 - x.axis, x.outer)


@rule("FusedMatMul", "TransposeMatMul", domain=CONTRIB)
def fused_matmul(node: Node) -> Tensor:
    if node.integer("transBatchA", 0) or node.integer("transBatchB", 0):
        raise Mixes("turns batches round")
    factors = [_turned_last(node[index], node.integer(name, 0)) for index, name in ((0, "transA"), (1, "transB"))]
    return product_of(node, *factors)


def _turned_last(x: Tensor, turn: int) -> Tensor:
    if not turn or x.rank < 2:
        return x
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    return Tensor(tuple(x.sizes[axis] for axis in order), None if x.axis is None else order.index(x.axis), x.outer)


@rule("FusedGemm", domain=CONTRIB)
def fused_gemm(node: Node) -> Tensor:
    return general_product(node, node.integer("transA", 0), node.integer("transB", 0))


@rule("Einsum")
def einsum(node: Node) -> Tensor:
    equation = node.text("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = [_labels(term, tensor.rank) for term, tensor in zip(left.split(","), node.given, strict=True)]
    if arrow:
        widest = max((sum(label.isdigit() for label in term) for term in terms), default=0)
        result = _labels(right, widest + len(right.replace("...", "")) if "..." in right else len(right))
    else:
        seen = [label for term in terms for label in term]
        dots = sorted({label for label in seen if label.isdigit()}, key=int, reverse=True)
        result = [*dots, *sorted(label for label in set(seen) if not label.isdigit() and seen.count(label) == 1)]
    lead: Tensor | None = None
    name = ""
    sizes: dict[str, Size] = {}
    for term, tensor in zip(terms, node.given, strict=True):
        for label, size in zip(term, tensor.sizes, strict=True):
            if sizes.get(label, 1) == 1 or (isinstance(size, int) and not has_batch(sizes[label])):
                sizes[label] = size if size != 1 else sizes.get(label, 1)
        if tensor.axis is None:
            continue
        label = term[tensor.axis]
        if lead is not None and (label, tensor.outer, tensor.inner) != (name, lead.outer, lead.inner):
            raise Mixes("multiplies rows by other rows")
        if term.count(label) > 1:
            raise Mixes("takes a diagonal over the batch axis")
        lead, name = tensor, label
    if lead is None:
        return Tensor(tuple(sizes.get(label, 1) for label in result))
    for term, tensor in zip(terms, node.given, strict=True):
        if tensor.axis is None and name in term:
            raise Mixes("rows meet a tensor with another size there")
        if tensor.axis is not None and term.count(name) != 1:
            raise Mixes("multiplies rows by other rows")
    if result.count(name) != 1:
        raise Mixes(CONTRACTED)
    return Tensor(tuple(sizes.get(label, 1) for label in result), result.index(name), lead.outer)


def _labels(term: str, rank: int) -> list[str]:
    """One label for each axis; those of "..." are numbers that count from its end."""
    if "..." not in term:
        labels: Sequence[str] = list(term)
    else:
        before, _, after = term.partition("...")
        dots = rank - len(before) - len(after)
        labels = [*before, *(str(dots - place) for place in range(dots)), *after]
    if len(labels) != rank:
        raise Mixes("its equation has another number of axes")
    return list(labels)
