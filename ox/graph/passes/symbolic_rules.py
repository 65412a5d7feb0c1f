"""How the sizes of an operator's results follow from those of its inputs, for operators that keep names of sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ox.core.kind import Kind
from ox.core.operator import OPS
from ox.graph.ir import Node
from ox.graph.passes.polynomial import Polynomial, product
from ox.graph.passes.symbolic_sizes import Sizes, SymbolicSizes

ONE = Polynomial.of(1)
Rule = Callable[[SymbolicSizes, Node], Sizes | None]


def sizes_of(known: SymbolicSizes, node: Node) -> list[Sizes | None] | None:
    """The sizes of each result of a node; None where there is no rule."""
    op = OPS.get(node.key)
    if node.domain or op is None or any(True for _ in node.subgraphs()):
        return None
    if node.op_type == "Split":
        return _split(known, node)
    rule = RULES.get(node.op_type) or BY_KIND.get(op.kind) or (_broadcast if op.batching == "pointwise" else None)
    return None if rule is None else [rule(known, node), *[None] * (len(node.outputs) - 1)]


def broadcast(known: SymbolicSizes, parts: Sequence[Sizes | None]) -> Sizes | None:
    """The common sizes of values that a run broadcasts."""
    if any(part is None for part in parts):
        return None
    rank = max(len(part or ()) for part in parts)
    result = []
    for axis in range(-rank, 0):
        sizes = dict.fromkeys(part[axis] for part in parts if part is not None and len(part) >= -axis)
        wide = [size for size in sizes if size != ONE]
        numbers = [size for size in wide if size.number is not None]
        if len(wide) < 2:
            result.append(wide[0] if wide else ONE)
        else:  # another one may be 1
            result.append(numbers[0] if numbers else known.same_as(("broadcast", frozenset(wide))))
    return tuple(result)


def _broadcast(known: SymbolicSizes, node: Node) -> Sizes | None:
    return broadcast(known, [known.of(v) for v in node.inputs if v is not None])


def _same(known: SymbolicSizes, node: Node) -> Sizes | None:
    return known.of(node.inputs[0])


def _transpose(known: SymbolicSizes, node: Node) -> Sizes | None:
    sizes, perm = known.of(node.inputs[0]), node.attributes.get("perm")
    return None if sizes is None else tuple(sizes[axis] for axis in perm) if perm is not None else sizes[::-1]


def _reshape(known: SymbolicSizes, node: Node) -> Sizes | None:
    sizes, target = known.of(node.inputs[0]), known.numbers.get(node.inputs[1])  # type: ignore[arg-type]
    if sizes is None or target is None:
        return None
    found: list[Polynomial | None] = []
    for axis, size in enumerate(target):
        if size.number == 0 and not node.attributes.get("allowzero"):
            if axis >= len(sizes):
                return None
            found.append(sizes[axis])
        else:
            found.append(None if size.number == -1 else size)
    if None in found:
        whole, others = product(sizes), product(size for size in found if size is not None)
        rest = whole.divided(others) if others.number != 0 else None
        found[found.index(None)] = rest or known.same_as(("rest", whole, others))
    return None if None in found else tuple(size for size in found if size is not None)


def _flatten(known: SymbolicSizes, node: Node) -> Sizes | None:
    sizes, axis = known.of(node.inputs[0]), node.attributes.get("axis", 1)
    return None if sizes is None else (product(sizes[:axis]), product(sizes[axis:]))


def _axes(known: SymbolicSizes, node: Node, rank: int) -> list[int] | None:
    """The axes in the second input, none of them negative; None where they are not known."""
    axes = known.constant(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
    return None if axes is None else [axis % rank for axis in axes]


def _squeeze(known: SymbolicSizes, node: Node) -> Sizes | None:
    sizes = known.of(node.inputs[0])
    axes = None if sizes is None else _axes(known, node, len(sizes))
    return None if sizes is None or axes is None else tuple(s for i, s in enumerate(sizes) if i not in axes)


def _unsqueeze(known: SymbolicSizes, node: Node) -> Sizes | None:
    sizes, axes = known.of(node.inputs[0]), known.constant(node.inputs[1])
    if sizes is None or axes is None:
        return None
    rank, rest = len(sizes) + len(axes), iter(sizes)
    places = [axis % rank for axis in axes]
    return tuple(ONE if axis in places else next(rest) for axis in range(rank))


def _reduce(known: SymbolicSizes, node: Node) -> Sizes | None:
    sizes = known.of(node.inputs[0])
    axes = None if sizes is None else _axes(known, node, len(sizes))
    if sizes is None or not axes:
        return None
    return _without(sizes, axes, node)


def _arg_reduce(known: SymbolicSizes, node: Node) -> Sizes | None:
    sizes = known.of(node.inputs[0])
    return None if sizes is None else _without(sizes, [node.attributes.get("axis", 0) % len(sizes)], node)


def _without(sizes: Sizes, axes: Sequence[int], node: Node) -> Sizes:
    if node.attributes.get("keepdims", 1):
        return tuple(ONE if axis in axes else size for axis, size in enumerate(sizes))
    return tuple(size for axis, size in enumerate(sizes) if axis not in axes)


def _concat(known: SymbolicSizes, node: Node) -> Sizes | None:
    parts = [known.of(v) for v in node.inputs]
    if any(part is None for part in parts):
        return None
    every = [part for part in parts if part is not None]
    axis, result = node.attributes["axis"] % len(every[0]), []
    for i, sizes in enumerate(zip(*every, strict=True)):
        equal = next((size for size in sizes if size.number is not None), sizes[0])
        result.append(sum(sizes[1:], sizes[0]) if i == axis else equal)
    return tuple(result)


def _split(known: SymbolicSizes, node: Node) -> list[Sizes | None] | None:
    sizes, count = known.of(node.inputs[0]), len(node.outputs)
    if sizes is None:
        return None
    axis = node.attributes.get("axis", 0) % len(sizes)
    parts = known.numbers.get(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if parts is None:
        each = sizes[axis].divided(Polynomial.of(count))
        if each is None or (len(node.inputs) > 1 and node.inputs[1] is not None):
            parts = tuple(known.fresh() for _ in range(count))
        else:
            parts = (each,) * count
    return [(*sizes[:axis], part, *sizes[axis + 1 :]) for part in parts]


def _slice(known: SymbolicSizes, node: Node) -> Sizes | None:
    sizes = known.of(node.inputs[0])
    starts, ends = known.constant(node.inputs[1]), known.constant(node.inputs[2])
    axes, steps = ([*node.inputs, None, None][place] for place in (3, 4))
    if sizes is None or starts is None or ends is None:
        return None
    places = known.constant(axes) if axes is not None else list(range(len(starts)))
    strides = known.constant(steps) if steps is not None else [1] * len(starts)
    if places is None or strides is None:
        return None
    result = list(sizes)
    for start, end, axis, step in zip(starts, ends, places, strides, strict=True):
        count = sizes[axis].number
        if count is not None:
            result[axis] = Polynomial.of(len(range(count)[_clipped(start, end, step)]))
        elif not (start == 0 and step == 1 and end >= 2**31 - 1):
            result[axis] = known.same_as(("slice", sizes[axis], start, end, step))
    return tuple(result)


def _clipped(start: int, end: int, step: int) -> slice:
    """As Python slices, in which a backward one that ends before the first element has no end."""
    return slice(start, None if step < 0 and end < -(2**31) + 2 else end, step)


def _gather(known: SymbolicSizes, node: Node) -> Sizes | None:
    sizes, places = known.of(node.inputs[0]), known.of(node.inputs[1])
    if sizes is None or places is None:
        return None
    axis = node.attributes.get("axis", 0) % len(sizes)
    return (*sizes[:axis], *places, *sizes[axis + 1 :])


def _gather_elements(known: SymbolicSizes, node: Node) -> Sizes | None:
    return known.of(node.inputs[1])


def _expand(known: SymbolicSizes, node: Node) -> Sizes | None:
    return broadcast(known, [known.of(node.inputs[0]), known.numbers.get(node.inputs[1])])  # type: ignore[arg-type]


def _filled(known: SymbolicSizes, node: Node) -> Sizes | None:
    return known.numbers.get(node.inputs[0])  # type: ignore[arg-type]


def _matmul(known: SymbolicSizes, node: Node) -> Sizes | None:
    a, b = known.of(node.inputs[0]), known.of(node.inputs[1])
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return None
    batch = broadcast(known, [a[:-2], b[:-2]])
    return None if batch is None else (*batch, a[-2], b[-1])


def _gemm(known: SymbolicSizes, node: Node) -> Sizes | None:
    a, b = known.of(node.inputs[0]), known.of(node.inputs[1])
    if a is None or b is None:
        return None
    return a[1 if node.attributes.get("transA") else 0], b[0 if node.attributes.get("transB") else 1]


def _pad(known: SymbolicSizes, node: Node) -> Sizes | None:
    sizes, pads = known.of(node.inputs[0]), known.numbers.get(node.inputs[1])  # type: ignore[arg-type]
    if sizes is None or pads is None:
        return None
    axes = list(range(len(sizes)))
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        named = known.constant(node.inputs[3])
        if named is None:
            return None
        axes = [axis % len(sizes) for axis in named]
    result = list(sizes)
    for i, axis in enumerate(axes):
        result[axis] = result[axis] + pads[i] + pads[i + len(axes)]
    return tuple(result)


def _conv(known: SymbolicSizes, node: Node) -> Sizes | None:
    sizes, weight = known.of(node.inputs[0]), known.of(node.inputs[1])
    if sizes is None or weight is None:
        return None
    kernel = [size.number for size in weight[2:]]
    return None if None in kernel else _windows(known, node, sizes, weight[0], kernel)


def _pool(known: SymbolicSizes, node: Node) -> Sizes | None:
    sizes = known.of(node.inputs[0])
    if sizes is None or node.attributes.get("ceil_mode"):
        return None
    return _windows(known, node, sizes, sizes[1], node.attributes["kernel_shape"])


def _windows(
    known: SymbolicSizes, node: Node, sizes: Sizes, channels: Polynomial, kernel: Sequence[int | None]
) -> Sizes | None:
    """How often a window fits along each axis of images."""
    if node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", None):
        return None
    rank = len(kernel)
    strides = node.attributes.get("strides") or [1] * rank
    dilations = node.attributes.get("dilations") or [1] * rank
    pads = node.attributes.get("pads") or [0] * 2 * rank
    result = [sizes[0], channels]
    for axis, width in enumerate(kernel):
        reach = dilations[axis] * ((width or 1) - 1) + 1
        free = sizes[axis + 2] + Polynomial.of(pads[axis] + pads[axis + rank] - reach)
        if free.number is not None:
            result.append(Polynomial.of(free.number // strides[axis] + 1))
        else:
            stride = Polynomial.of(strides[axis])
            result.append((free.divided(stride) or known.same_as(("Div", free, stride))) + ONE)
    return tuple(result)


def _global_pool(known: SymbolicSizes, node: Node) -> Sizes | None:
    sizes = known.of(node.inputs[0])
    return None if sizes is None else (*sizes[:2], *[ONE] * (len(sizes) - 2))


BY_KIND: dict[Kind | None, Rule] = {
    "identity": _same, "normalization": _same, "cumulative": _same, "scatter": _same, "reduction": _reduce,
}  # fmt: skip
RULES: dict[str, Rule] = {
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg_reduce),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    "Transpose": _transpose, "Reshape": _reshape, "Flatten": _flatten, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Concat": _concat, "Slice": _slice, "Gather": _gather, "GatherElements": _gather_elements, "Expand": _expand,
    "ConstantOfShape": _filled, "MatMul": _matmul, "Gemm": _gemm, "Pad": _pad, "Conv": _conv,
}  # fmt: skip
