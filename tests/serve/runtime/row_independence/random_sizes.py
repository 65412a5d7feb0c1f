"""Nodes that calculate with sizes: quotients, branches, empty slices; for graphs with a second input of open length."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto, helper

from tests.serve.runtime.row_independence.random_graph import (
    Growing,
    concat,
    conv,
    expand,
    flatten,
    gather,
    matmul,
    pad,
    part_of_shape,
    pool,
    reduce,
    reshape,
    reshape_by_shape,
    slice_,
    split,
    tile,
    transpose,
    unsqueeze,
)  # fmt: skip

NUMBERS = [-3, -1, 0, 0, 1, 1, 2, 2, 3, 4, 5, 8, 1 << 31, (1 << 63) - 1]
SMALL = [0, 1, 1, 2, 2, 3, 4]


def number(g: Growing, depth: int = 2) -> str:
    """A vector of one integer that follows from sizes."""
    draw = g.random.random()
    if not depth or draw < 0.15:
        if g.random.random() < 0.4:
            return g.constant([int(g.random.choice(SMALL if g.random.random() < 0.8 else NUMBERS))])
        return part_of_shape(g, "l" if g.random.random() < 0.5 else g.pick())
    if draw < 0.7:
        op = str(g.random.choice(["Add", "Sub", "Mul", "Div", "Div", "Mod", "Min", "Max"]))
        two = number(g, depth - 1)
        if op in ("Div", "Mod"):  # by something, so that most graphs run
            constant = g.constant([int(g.random.choice([-2, 2, 3, 4, 8]))])
            two = constant if g.random.random() < 0.6 else g.node("Max", [two, g.constant([1])])
        return g.node(op, [number(g, depth - 1), two])
    if draw < 0.78:
        return g.node("Neg", [number(g, depth - 1)])
    if draw < 0.84:
        small = g.node("Cast", [number(g, depth - 1)], to=TensorProto.INT32)
        return g.node("Cast", [small], to=TensorProto.INT64)
    if draw < 0.92:
        return g.node("Where", [truth(g, depth - 1), number(g, depth - 1), number(g, depth - 1)])
    if draw < 0.96:
        start = int(g.random.choice([0, 1, 2, -1]))
        kept = g.node("Slice", [g.node("Shape", [g.pick()]), g.constant([start]), g.constant([1 << 40])])
        return g.node(str(g.random.choice(["ReduceProd", "ReduceSum"])), [kept], keepdims=1)
    return g.node("Unsqueeze", [g.node("Size", [g.pick()]), g.constant([0])])


def small(g: Growing) -> str:
    """A number to make something of that size: not a large one."""
    if g.random.random() < 0.3:
        return part_of_shape(g, "l")
    return g.node("Min", [number(g, 1), g.constant([int(g.random.choice([4, 40]))])])


def truth(g: Growing, depth: int = 1) -> str:
    """A vector of one truth value that follows from sizes."""
    op = str(g.random.choice(["Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual", "Bool"]))
    if g.random.random() < 0.3:
        return g.node("Greater", [part_of_shape(g, g.pick()), g.constant([int(g.random.choice(SMALL))])])
    if op == "Bool":
        found = g.node("Cast", [number(g, depth)], to=TensorProto.BOOL)
    else:
        found = g.node(op, [number(g, depth), number(g, depth)])
    if g.random.random() < 0.2:
        return g.node("Not", [found])
    if depth and g.random.random() < 0.2:
        return g.node(str(g.random.choice(["And", "Or"])), [found, truth(g, depth - 1)])
    return found


def scalar(g: Growing, vector: str) -> str:
    return g.node("Squeeze", [vector, g.constant([0])])


def branch(nodes: list[Any], output: str, name: str) -> Any:
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)])


def branch_by_size(g: Growing, t: str) -> str:
    """Rows to themselves if something holds of sizes, the largest of all if not; or the other way round."""
    return branched(g, t, truth(g, 2))


def branched(g: Growing, t: str, condition: str) -> str:
    kept = branch([helper.make_node("Relu", [t], ["k"])], "k", "kept")
    mixed = branch([helper.make_node("ReduceMax", [t], ["m"], keepdims=0), helper.make_node("Add", [t, "m"], ["b"])],
                   "b", "mixed")  # fmt: skip
    graphs = (kept, mixed) if g.random.random() < 0.5 else (mixed, kept)
    return g.node("If", [scalar(g, condition)], then_branch=graphs[0], else_branch=graphs[1])


def branch_by_what_is_left(g: Growing, t: str) -> str:
    """Takes away until nothing may be left, moves that, and branches by a size of it."""
    end = g.constant([0]) if g.random.random() < 0.5 else number(g, 1)
    left = g.measured(g.node("Slice", [t, g.constant([0]), end, g.constant([g.axis(t)])]))
    for _ in range(int(g.random.integers(1, 4))):
        left = g.measured(MOVES[int(g.random.integers(len(MOVES)))](g, left))
    least = g.constant([int(g.random.choice(SMALL))])
    return branched(g, t, g.node("Greater", [part_of_shape(g, left), least]))


def size_by_branch(g: Growing, t: str) -> str:
    """What has one size or another."""
    condition, other = scalar(g, truth(g)), g.pick()
    graphs = [branch([helper.make_node("Identity", [name], ["i"])], "i", name) for name in (t, other)]
    return g.node("If", [condition], then_branch=graphs[0], else_branch=graphs[1])


def cut(g: Growing, t: str) -> str:
    """A slice that may be empty, or turned round."""
    axis = g.axis(t)
    start = g.constant([int(g.random.choice([0, 0, 0, 1, 2, -1, 9]))]) if g.random.random() < 0.7 else number(g)
    end = number(g) if g.random.random() < 0.7 else g.constant([int(g.random.choice(NUMBERS))])
    rest = [g.constant([axis])]
    if g.random.random() < 0.3:
        rest.append(g.constant([int(g.random.choice([1, 2, -1]))]))
    return g.node("Slice", [t, start, end, *rest])


def empty_beside(g: Growing, t: str) -> str:
    """Nothing, joined to something: it is there again, its size an expression."""
    axis = g.axis(t)
    none = g.node("Slice", [t, g.constant([0]), number(g, 1), g.constant([axis])])
    return g.node("Concat", [none, t], axis=axis)


def reshape_to_numbers(g: Growing, t: str) -> str:
    pieces = [small(g) if g.random.random() < 0.5 else part_of_shape(g, t)
              for _ in range(int(g.random.integers(1, 4)))]  # fmt: skip
    if g.random.random() < 0.5:
        pieces[int(g.random.integers(len(pieces)))] = g.constant([-1])
    zero = int(g.random.random() < 0.2)
    return g.node("Reshape", [t, g.node("Concat", pieces, axis=0)], allowzero=zero)


def group(g: Growing, t: str) -> str:
    """Splits an axis in two by a quotient, as views do."""
    axis, by = g.axis(t), g.constant([int(g.random.choice([1, 2, 3]))])
    parts = [part_of_shape(g, t) for _ in g.shapes[t]]
    for place in range(len(parts)):
        parts[place] = g.node("Gather", [g.node("Shape", [t]), g.constant([place])])
    quotient = g.node("Div", [parts[axis], by])
    pair = [quotient, by] if g.random.random() < 0.5 else [by, quotient]
    parts[axis : axis + 1] = pair
    return g.node("Reshape", [t, g.node("Concat", parts, axis=0)])


def expand_to_numbers(g: Growing, t: str) -> str:
    pieces = [small(g) if g.random.random() < 0.5 else g.constant([1]) for _ in range(3)]
    return g.node("Expand", [t, g.node("Concat", pieces[: int(g.random.integers(1, 4))], axis=0)])


def tile_by_numbers(g: Growing, t: str) -> str:
    pieces = [small(g) if g.random.random() < 0.4 else g.constant([1]) for _ in g.shapes[t]]
    return g.node("Tile", [t, g.node("Concat", pieces, axis=0)])


def filled_by_numbers(g: Growing, t: str) -> str:
    pieces = [small(g) if g.random.random() < 0.5 else part_of_shape(g, t) for _ in range(int(g.random.integers(1, 4)))]
    return g.node("ConstantOfShape", [g.node("Concat", pieces, axis=0)])


def split_by_numbers(g: Growing, t: str) -> str:
    axis = g.axis(t)
    first = number(g, 1)
    whole = g.node("Gather", [g.node("Shape", [t]), g.constant([axis])])
    return g.node("Split", [t, g.node("Concat", [first, g.node("Sub", [whole, first])], axis=0)], 2, axis=axis)


def pad_by_numbers(g: Growing, t: str) -> str:
    pieces = [g.constant([0]) for _ in range(2 * len(g.shapes[t]))]
    pieces[int(g.random.integers(len(pieces)))] = small(g)
    return g.node("Pad", [t, g.node("Concat", pieces, axis=0)])


def counted(g: Growing, t: str) -> str:
    """A range that may be empty: picked by, added, or its length."""
    numbers = g.node(
        "Range", [scalar(g, small(g)) for _ in range(2)] + [g.constant(int(g.random.choice([1, 1, 2, -1])))]
    )
    draw = g.random.random()
    if draw < 0.4:
        return g.node("Gather", [t, numbers], axis=g.axis(t))
    values = g.node("Cast", [numbers], to=TensorProto.FLOAT)
    if draw < 0.6:
        return g.node("Add", [t, g.node("ReduceSum", [values], keepdims=1)])
    return g.node("Add", [t, values])


def picked(g: Growing, t: str) -> str:
    return g.node("Gather", [t, number(g, 1)], axis=g.axis(t))


def top_by_number(g: Growing, t: str) -> str:
    return g.node("TopK", [t, number(g, 1)], 2, axis=g.axis(t))


def reduced_rest(g: Growing, t: str) -> str:
    """Over the axis that a number names, or over none."""
    axes = number(g, 1) if g.random.random() < 0.3 else g.constant([], "int64")
    op = str(g.random.choice(["ReduceSum", "ReduceMax", "ReduceProd"]))
    return g.node(op, [t, axes], keepdims=int(g.random.integers(2)), noop_with_empty_axes=int(g.random.integers(2)))


def looped(g: Growing, t: str) -> str:
    """As many turns as a number says; each doubles, or takes the largest of all."""
    mixing = g.random.random() < 0.4
    total = [helper.make_node("ReduceMax", ["s"], ["m"], keepdims=0), helper.make_node("Add", ["s", "m"], ["n"])]
    steps = total if mixing else [helper.make_node("Add", ["s", "s"], ["n"])]
    nodes = [helper.make_node("Identity", ["go"], ["on"]), *steps, helper.make_node("Identity", ["n"], ["each"])]

    def info(name: str, kind: int, dims: Any = None) -> Any:
        return helper.make_tensor_value_info(name, kind, dims)

    body = helper.make_graph(
        nodes, "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("s", TensorProto.FLOAT)],
        [info("on", TensorProto.BOOL, []), info("n", TensorProto.FLOAT), info("each", TensorProto.FLOAT)],
    )  # fmt: skip
    trips = g.node("Min", [number(g, 1), g.constant([3])])
    final, stacked = f"f{len(g.nodes)}", f"s{len(g.nodes)}"
    trips = scalar(g, trips)
    g.nodes.append(helper.make_node("Loop", [trips, "", t], [final, stacked], body=body, name=f"node_{len(g.nodes)}"))
    return stacked if g.random.random() < 0.3 else final


def own_rows(g: Growing, t: str) -> str:
    """Picks by numbers of rows, and by another place or none: within the row, if it is the first number."""
    length = scalar(g, part_of_shape(g, t) if g.random.random() < 0.3 else g.node("Shape", ["x"], start=0, end=1))
    numbers = g.node("Range", [g.constant(0), length, g.constant(1)])
    if g.random.random() < 0.3:
        return g.node("Gather", [t, numbers], axis=g.axis(t))
    other = g.node("ArgMax", [g.pick()], axis=int(g.random.integers(1, 3)), keepdims=0)
    pair = [g.node("Unsqueeze", [name, g.constant([-1])]) for name in (numbers, other)]
    if g.random.random() < 0.2:
        pair.reverse()
    at = g.node("Concat", pair, axis=int(g.random.choice([-1, 1])))
    if g.random.random() < 0.2:
        return g.node("Cast", [at], to=TensorProto.FLOAT)
    if g.random.random() < 0.3:
        values = g.node("GatherND", [g.pick(), at])
        return g.node("ScatterND", [t, at, values])
    return g.node("GatherND", [t, at])


def with_length(g: Growing, t: str) -> str:
    """Something of the second input, whose length nothing else tells."""
    other = "l" if g.random.random() < 0.5 else g.node("Unsqueeze", ["l", g.constant([g.axis("l", 1)])])
    op = str(g.random.choice(["Add", "MatMul", "Mean"]))
    if op == "Mean":
        return g.node("Add", [t, g.node("ReduceMean", [other, g.constant([-1])], keepdims=1)])
    return g.node(op, [t, other])


def resized(g: Growing, t: str) -> str:
    sizes = [g.node("Gather", [g.node("Shape", [t]), g.constant([place])]) for place in range(len(g.shapes[t]))]
    if g.random.random() < 0.7:
        sizes[int(g.random.integers(len(sizes)))] = small(g)
    mode = str(g.random.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]))
    return g.node("Resize", [t, "", "", g.node("Concat", sizes, axis=0)], mode="nearest",
                  coordinate_transformation_mode=mode)  # fmt: skip


MOVES = [
    flatten, transpose, reshape, reshape_by_shape, unsqueeze, tile, split, concat, pad, slice_, expand, reduce, gather,
    cut, group, reshape_to_numbers, tile_by_numbers, split_by_numbers, pad_by_numbers, picked, matmul, pool, conv,
]  # fmt: skip
SIZE_STEPS = [
    own_rows,
    own_rows,
    branch_by_what_is_left, branch_by_what_is_left, branch_by_what_is_left,
    branch_by_size, branch_by_size, branch_by_size, size_by_branch, cut, cut, cut, empty_beside, reshape_to_numbers,
    reshape_to_numbers, group, group, expand_to_numbers, tile_by_numbers, filled_by_numbers, split_by_numbers,
    pad_by_numbers, counted, counted, picked, top_by_number, reduced_rest, looped, with_length, with_length, resized,
]  # fmt: skip
