"""Random graphs over small tensors, grown one node at a time with ONNX Runtime as the judge of what runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
ROWS = 3  # while it grows; sizes behind the batch may be 3, too, so that axes are easily mistaken


def session(model: ModelProto, optimised: bool = False) -> Any:
    """Plain, as the standard has it; or optimised, as the server runs it."""
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = False
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@dataclass
class Growing:
    """A graph of a float input and the float tensors computed so far, with their shapes for a batch of `ROWS`.

    With `length` there is a second one, `l` [batch, length], whose length the file leaves open; and tensors may be
    empty.
    """

    random: np.random.Generator
    tail: tuple[int, ...]
    symbolic: bool
    steps: Sequence[Callable[[Growing, str], str]]
    length: int | None = None
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shapes["x"] = (ROWS, *self.tail)
        if self.length is not None:
            self.shapes["l"] = (ROWS, self.length)
        self.feed = {name: self.random.standard_normal(dims).astype(np.float32) for name, dims in self.shapes.items()}

    def model(self, output: str) -> ModelProto:
        dims = ["batch", *(f"d{axis}" if self.symbolic else size for axis, size in enumerate(self.tail))]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)]
        if self.length is not None:
            inputs.append(helper.make_tensor_value_info("l", TensorProto.FLOAT, ["batch", "length"]))
        y = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", inputs, [y], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> str:
        names = [f"t{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"node_{len(self.nodes)}", **attributes))
        return names[int(self.random.integers(outputs)) if op == "Split" else 0]

    def pick(self) -> str:
        names = list(self.shapes)
        recent = names[-3:]
        return str(self.random.choice(recent if self.random.random() < 0.8 else names))

    def axis(self, name: str, extra: int = 0) -> int:
        return int(self.random.integers(max(1, len(self.shapes[name]) + extra)))

    def measured(self, name: str) -> str:
        """A tensor, once its shape is known; ValueError where it is too large."""
        (value,) = session(self.model(name)).run([name], self.feed)
        if (not value.size and self.length is None) or value.size > 4096 or value.ndim > 5:
            raise ValueError
        self.shapes[name] = value.shape
        return name

    def grow(self) -> None:
        """One more tensor, if what is drawn runs."""
        before = len(self.nodes), len(self.constants), dict(self.shapes)
        try:
            self.measured(self.steps[int(self.random.integers(len(self.steps)))](self, self.pick()))
        except Exception:
            del self.nodes[before[0] :], self.constants[before[1] :]
            self.shapes = before[2]


# ---- what a node may be: a tensor in, a float tensor out


def unary(g: Growing, t: str) -> str:
    return g.node(str(g.random.choice(["Relu", "Neg", "Sigmoid", "Abs"])), [t])


def binary(g: Growing, t: str) -> str:
    return g.node(str(g.random.choice(["Add", "Mul", "Sub", "Max", "Min"])), [t, g.pick()])


def with_constant(g: Growing, t: str) -> str:
    shape = [int(size) if g.random.random() < 0.5 else 1 for size in g.shapes[t]][g.axis(t) :]
    return g.node("Add", [t, g.constant(g.random.standard_normal(shape), np.float32)])


def matmul(g: Growing, t: str) -> str:
    if g.random.random() < 0.5:
        weight = g.constant(g.random.standard_normal((g.shapes[t][-1], 2)), np.float32)
        return g.node("MatMul", [t, weight])
    return g.node("MatMul", [t, g.pick()])


def gemm(g: Growing, t: str) -> str:
    inputs = [t, g.pick(), *([g.pick()] if g.random.random() < 0.5 else [])]
    return g.node("Gemm", inputs, transA=int(g.random.integers(2)), transB=int(g.random.integers(2)))


def reduce(g: Growing, t: str) -> str:
    op = str(g.random.choice(["ReduceMax", "ReduceSum", "ReduceMean"]))
    return g.node(op, [t, g.constant([g.axis(t)])], keepdims=int(g.random.integers(2)))


def arg_max(g: Growing, t: str) -> str:
    index = g.node("ArgMax", [t], axis=g.axis(t), keepdims=int(g.random.integers(2)))
    return g.node("Cast", [index], to=TensorProto.FLOAT)


def along(g: Growing, t: str) -> str:
    op = str(g.random.choice(["Softmax", "CumSum", "LpNormalization", "LayerNormalization"]))
    axis = g.axis(t)
    if op == "CumSum":
        return g.node(op, [t, g.constant(axis)], reverse=int(g.random.integers(2)))
    if op == "LayerNormalization":
        return g.node(op, [t, g.constant(np.ones(g.shapes[t][axis:]), np.float32)], axis=axis)
    return g.node(op, [t], axis=axis)


def top_k(g: Growing, t: str) -> str:
    return g.node("TopK", [t, g.constant([1])], 2, axis=g.axis(t))


def transpose(g: Growing, t: str) -> str:
    return g.node("Transpose", [t], perm=g.random.permutation(len(g.shapes[t])).tolist())


def reshape(g: Growing, t: str) -> str:
    """Merges neighbours, splits an axis, or both, with a size left open or copied."""
    sizes: list[int] = list(g.shapes[t])
    for _ in range(2):
        at = int(g.random.integers(max(1, len(sizes))))
        if g.random.random() < 0.5 and at + 1 < len(sizes):
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        elif sizes[at] % 2 == 0:
            sizes[at : at + 1] = [2, sizes[at] // 2] if g.random.random() < 0.5 else [sizes[at] // 2, 2]
    if sizes and g.random.random() < 0.8:
        sizes[int(g.random.integers(len(sizes)))] = -1
    for place in range(len(sizes)):
        if place < len(g.shapes[t]) and sizes[place] == g.shapes[t][place] and g.random.random() < 0.3:
            sizes[place] = 0
    return g.node("Reshape", [t, g.constant(sizes)])


def part_of_shape(g: Growing, t: str) -> str:
    """One size as a vector of one."""
    shape = g.node("Shape", [t])
    return g.node("Gather", [shape, g.constant([g.axis(t)])])


def reshape_by_shape(g: Growing, t: str) -> str:
    """As PyTorch's exporter writes it: Shape, Gather, Concat, Reshape."""
    pieces = [part_of_shape(g, t) if g.random.random() < 0.6 else g.constant([int(g.random.choice([-1, 1, 2]))])
              for _ in range(int(g.random.integers(1, 4)))]  # fmt: skip
    if g.random.random() < 0.4 and len(pieces) > 1:
        pieces[-1] = g.node("Mul", [pieces[-1], part_of_shape(g, t)])
    return g.node("Reshape", [t, g.node("Concat", pieces, axis=0)])


def flatten(g: Growing, t: str) -> str:
    return g.node("Flatten", [t], axis=g.axis(t, 1))


def unsqueeze(g: Growing, t: str) -> str:
    return g.node("Unsqueeze", [t, g.constant([g.axis(t, 1)])])


def squeeze(g: Growing, t: str) -> str:
    """Of an axis that is named: others would leave a rank that depends on the batch, which ends ONNX Runtime 1.31's
    process where an Einsum follows."""
    return g.node("Squeeze", [t, g.constant([g.shapes[t].index(1)])])


def expand(g: Growing, t: str) -> str:
    pieces = [part_of_shape(g, g.pick()) if g.random.random() < 0.5 else g.constant([1]) for _ in range(3)]
    return g.node("Expand", [t, g.node("Concat", pieces[: int(g.random.integers(1, 4))], axis=0)])


def filled(g: Growing, t: str) -> str:
    pieces = [part_of_shape(g, t), g.constant([2]), part_of_shape(g, t)][: int(g.random.integers(1, 4))]
    return g.node("ConstantOfShape", [g.node("Concat", pieces, axis=0)])


def tile(g: Growing, t: str) -> str:
    return g.node("Tile", [t, g.constant([int(g.random.integers(1, 3)) for _ in g.shapes[t]])])


def slice_(g: Growing, t: str) -> str:
    axis = g.axis(t)
    end = g.random.choice([1, 2, ROWS, 1 << 31, 1 << 62])
    start = int(g.random.choice([0, 0, 1]))
    return g.node("Slice", [t, g.constant([start]), g.constant([end]), g.constant([axis])])


def gather(g: Growing, t: str) -> str:
    if g.random.random() < 0.3:
        index = g.node("ArgMax", [g.pick()], axis=int(g.random.integers(2)), keepdims=0)
        return g.node("Gather", [t, index], axis=g.axis(t))
    return g.node("Gather", [t, g.constant([0, 1] if g.random.random() < 0.5 else 0)], axis=g.axis(t))


def gather_elements(g: Growing, t: str) -> str:
    other = g.pick()
    index = g.node("ArgMax", [other], axis=g.axis(other), keepdims=1)
    return g.node(str(g.random.choice(["GatherElements", "GatherND"])), [t, index])


def split(g: Growing, t: str) -> str:
    return g.node("Split", [t], 2, axis=g.axis(t), num_outputs=2)


def concat(g: Growing, t: str) -> str:
    other, axis = t if g.random.random() < 0.5 else g.pick(), g.axis(t)
    if 0 in g.shapes[t] + g.shapes[other] and other != t:  # ONNX Runtime leaves gaps, of whatever was in memory
        raise ValueError
    return g.node("Concat", [t, other], axis=axis)


def pad(g: Growing, t: str) -> str:
    amounts = np.zeros(2 * len(g.shapes[t]))
    amounts[int(g.random.integers(len(amounts)))] = 1
    return g.node("Pad", [t, g.constant(amounts)])


def where(g: Growing, t: str) -> str:
    other = g.pick()
    return g.node("Where", [g.node("Greater", [t, g.constant(0.5, np.float32)]), t, other])


def size_as_data(g: Growing, t: str) -> str:
    number = g.node("Cast", [part_of_shape(g, t)], to=TensorProto.FLOAT)
    return g.node("Mul", [t, number])


def numbered(g: Growing, t: str) -> str:
    length = g.node("Squeeze", [part_of_shape(g, t), g.constant([0])])
    numbers = g.node("Range", [g.constant(0), length, g.constant(1)])
    if g.random.random() < 0.5:
        return g.node("Gather", [t, numbers], axis=g.axis(t))
    return g.node("Add", [t, g.node("Cast", [numbers], to=TensorProto.FLOAT)])


def einsum(g: Growing, t: str) -> str:
    """With a constant, over one axis."""
    letters = "abcde"[: len(g.shapes[t])]
    axis = g.axis(t)
    weight = g.constant(g.random.standard_normal((g.shapes[t][axis], 2)), np.float32)
    kept = [*(letter for letter in letters if g.random.random() < 0.8), "z"]
    return g.node("Einsum", [t, weight], equation=f"{letters},{letters[axis]}z->{''.join(g.random.permutation(kept))}")


def conv(g: Growing, t: str) -> str:
    channels = g.shapes[t][1]
    weight = g.constant(g.random.standard_normal((2, channels, *[2] * (len(g.shapes[t]) - 2))), np.float32)
    return g.node("Conv", [t, weight], auto_pad="SAME_UPPER")


def pool(g: Growing, t: str) -> str:
    if g.random.random() < 0.3:
        return g.node("GlobalAveragePool", [t])
    return g.node("MaxPool", [t], kernel_shape=[2] * (len(g.shapes[t]) - 2), auto_pad="SAME_UPPER")


def norm(g: Growing, t: str) -> str:
    weights = [g.constant(np.ones(g.shapes[t][1]), np.float32) for _ in range(2)]
    if g.random.random() < 0.5:
        return g.node("InstanceNormalization", [t, *weights])
    return g.node("MeanVarianceNormalization", [t], axes=sorted({g.axis(t), g.axis(t)}))


def scatter(g: Growing, t: str) -> str:
    other = g.pick()
    if g.random.random() < 0.5:
        index = g.node("ArgMax", [other], axis=g.axis(other), keepdims=1)
        return g.node("ScatterElements", [t, index, g.node("Gather", [other, g.constant([0])], axis=g.axis(other))])
    index = g.constant([[0]])
    return g.node("ScatterND", [t, index, g.node("Gather", [t, g.constant([0])], axis=0)])


def condition(g: Growing, t: str) -> str:
    """If the largest of what an axis leaves is high, its double."""
    top = g.node("ReduceMax", [t], keepdims=0)
    high = g.node("Greater", [top, g.constant(100, np.float32)])
    branches = []
    for op in ("Add", "Mul"):
        info = helper.make_tensor_value_info("b", TensorProto.FLOAT, None)
        branches.append(helper.make_graph([helper.make_node(op, [t, t], ["b"])], op, [], [info]))
    return g.node("If", [high], then_branch=branches[0], else_branch=branches[1])


def one_hot(g: Growing, t: str) -> str:
    index = g.node("ArgMax", [t], axis=g.axis(t), keepdims=0)
    values = g.constant([0, 1], np.float32)
    return g.node("OneHot", [index, g.constant(4), values], axis=g.axis(t))


def lower(g: Growing, t: str) -> str:
    return g.node("Trilu", [t])


def scan(g: Growing, t: str) -> str:
    """A running sum over one axis."""
    axis = g.axis(t)
    rest = [None] * (len(g.shapes[t]) - 1)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, rest) for name in ("s", "e", "n", "o")]
    nodes = [helper.make_node("Add", ["s", "e"], ["n"]), helper.make_node("Identity", ["n"], ["o"])]
    body = helper.make_graph(nodes, "body", infos[:2], infos[2:])
    start = g.node("Gather", [t, g.constant(0)], axis=axis)
    final, stacked = f"f{len(g.nodes)}", f"s{len(g.nodes)}"
    out = int(g.random.integers(len(g.shapes[t])))
    g.nodes.append(
        helper.make_node("Scan", [start, t], [final, stacked], body=body, num_scan_inputs=1, scan_input_axes=[axis],
                         scan_output_axes=[out], name=f"node_{len(g.nodes)}")
    )  # fmt: skip
    return stacked if g.random.random() < 0.5 else final


STEPS = [
    unary, binary, binary, with_constant, matmul, matmul, gemm, reduce, reduce, arg_max, along, along, top_k, transpose,
    transpose, reshape, reshape, reshape_by_shape, reshape_by_shape, flatten, unsqueeze, squeeze, expand, filled, tile,
    slice_, gather, gather_elements, split, concat, pad, where, size_as_data, numbered, einsum, conv, pool, norm,
    scatter, condition, one_hot, lower, scan,
]  # fmt: skip
