"""Operators that move values and compute none: two of them in a row are one, and some are none.

All rules are exact, but one: a Transpose that becomes a flag of a Gemm may give its sums in another order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ox.core.kind import Kind
from ox.core.operator import OPS, kind_of
from ox.dtypes import FROM_ONNX, DType, bfloat16, float16, float32, float64, is_floating
from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.sizes import fixed_values
from ox.graph.passes.walk import Walk

Rule = Callable[[Node], Value | None]


class _Movement:
    """The rules, by operator or kind: each returns what the node's result is already, or changes the node, or does
    nothing."""

    def __init__(self, graph: Graph) -> None:
        self.walk = Walk(graph)
        self.fixed = fixed_values(graph)
        self.rules = {
            "Cast": self.cast, "Transpose": self.transpose, "Slice": self.same_sizes, "CenterCropPad": self.same_sizes,
            "Pad": self.pad, "Concat": self.only_input, "Gemm": self.gemm, "MatMul": self.matmul,
        }  # fmt: skip
        self.by_kind: dict[Kind | None, Rule] = {
            "reshape": self.reshape, "repetition": self.same_sizes, "pointwise": self.broadcast,
        }  # fmt: skip

    def run(self) -> bool:
        for node in self.walk:
            rule = self.rules.get(node.key) or self.by_kind.get(kind_of(node.key))
            found = rule(node) if rule is not None else None
            if found is not None:
                self.walk.stand_for(node, [found])
            else:
                self.walk.keep(node)
        return self.walk.changed

    def cast(self, node: Node) -> Value | None:
        """Cast to the type that it has; a Cast of a Cast that lost nothing."""
        source = node.inputs[0]
        to = FROM_ONNX.get(node.attributes["to"])
        if source is None or to is None:
            return None
        if source.dtype == to:
            return source
        inner = self.walk.maker(source)
        if inner is None or inner.key != "Cast" or (origin := inner.inputs[0]) is None:
            return None
        if origin.dtype is not None and source.dtype is not None and keeps_all(origin.dtype, source.dtype):
            if origin.dtype == to:
                return origin
            self.reread(node, origin)
        return None

    def transpose(self, node: Node) -> Value | None:
        """One that moves no axis; one of another."""
        source = node.inputs[0]
        inner = self.walk.maker(source)
        perm = permutation(node)
        if source is None or perm is None:
            return None
        if inner is not None and inner.key == "Transpose" and (first := permutation(inner)) is not None:
            perm, source = [first[i] for i in perm], inner.inputs[0]
            node.attributes = {**node.attributes, "perm": perm}
            assert source is not None
            self.reread(node, source)
        return source if perm == list(range(len(perm))) else None

    def reshape(self, node: Node) -> Value | None:
        """One to the sizes that are there; one of another one."""
        source, result = node.inputs[0], node.outputs[0]
        assert source is not None
        if {source, result} <= self.fixed and source.shape == result.shape:
            return source
        inner = self.walk.maker(source)
        if inner is None or kind_of(inner.key) != "reshape" or (origin := inner.inputs[0]) is None:
            return None
        if result in self.fixed and result.shape is not None:
            target = self.walk.constant(np.array(result.shape, np.int64), result)
            node.op_type, node.attributes = "Reshape", {"allowzero": int(0 in result.shape)}
            node.inputs = [source, target]
            self.fixed.add(target)
            self.reread(node, origin)
            return origin if origin in self.fixed and origin.shape == result.shape else None
        if node.key == "Reshape":
            sizes = self.walk.number(node.inputs[1])  # a 0 would mean a size of the one in between
            if sizes is not None and (node.attributes.get("allowzero") or 0 not in sizes):
                self.reread(node, origin)
        return None

    def same_sizes(self, node: Node) -> Value | None:
        """What gives as many values as it takes takes all; a Slice only if it does not turn them round."""
        source, result = node.inputs[0], node.outputs[0]
        if source is None or not {source, result} <= self.fixed or source.shape != result.shape:
            return None
        if node.key == "Slice" and len(node.inputs) > 4 and node.inputs[4] is not None:
            steps = self.walk.number(node.inputs[4])
            if steps is None or (steps < 0).any():
                return None
        return source

    def pad(self, node: Node) -> Value | None:
        """A Pad of nothing. Equal sizes are not enough: it may cut at one end and add at the other."""
        pads = self.walk.number(node.inputs[1])
        return node.inputs[0] if pads is not None and not pads.any() else None

    def only_input(self, node: Node) -> Value | None:
        return node.inputs[0] if len(node.inputs) == 1 else None

    def broadcast(self, node: Node) -> Value | None:
        """Read what was expanded, where broadcasting gives the same sizes. PRelu broadcasts its weight alone, and the
        kernel of a function of ox may not broadcast."""
        op = OPS[node.key]
        if op.domain or op.weights or op.batching != "pointwise":
            return None
        for i, v in enumerate(node.inputs):
            inner = self.walk.maker(v)
            if inner is None or inner.key != "Expand" or (origin := inner.inputs[0]) is None:
                continue
            inputs = [origin if j == i else w for j, w in enumerate(node.inputs)]
            shapes = [w.shape for w in inputs if w is not None and w in self.fixed]
            if len(shapes) < len(inputs) or node.outputs[0] not in self.fixed:
                continue
            if np.broadcast_shapes(*shapes) == node.outputs[0].shape:  # type: ignore[arg-type]
                node.inputs = inputs
                self.walk.changed = True
        return None

    def gemm(self, node: Node) -> Value | None:
        """A transposed matrix is read as one."""
        for i, flag in enumerate(("transA", "transB")):
            inner = self.walk.maker(node.inputs[i])
            if inner is not None and inner.key == "Transpose" and _swaps(inner):
                node.inputs[i] = inner.inputs[0]
                node.attributes = {**node.attributes, flag: 1 - node.attributes.get(flag, 0)}
                self.walk.changed = True
        return None

    def matmul(self, node: Node) -> Value | None:
        """A product with a transposed matrix is a Gemm."""
        inner = [self.walk.maker(v) for v in node.inputs]
        turned = [m is not None and m.key == "Transpose" and _swaps(m) for m in inner]
        matrices = all(v is not None and v.shape is not None and len(v.shape) == 2 for v in node.inputs)
        if not matrices or not any(turned) or node.inputs[0] is None or not _in_gemm(node.inputs[0].dtype):
            return None
        node.op_type = "Gemm"
        node.attributes = {**OPS["Gemm"].schema.attributes}
        return self.gemm(node)

    def reread(self, node: Node, source: Value) -> None:
        """Let the node's first input be another."""
        node.inputs[0] = source
        self.walk.changed = True


def merge_movement(graph: Graph) -> bool:
    """Take away what moves nothing and join what moves twice. Whether anything was changed.

    Cast of Cast where the first loses nothing, Transpose of Transpose, Reshape of Reshape (and Flatten, Squeeze,
    Unsqueeze where the sizes are fixed), Expand, Slice and Pad that change nothing, Concat of one, an Expand that
    broadcasting repeats, and a Transpose before a product. Needs nodes in an order in which they run.
    """
    return _Movement(graph).run()


def keeps_all(narrow: DType, wide: DType) -> bool:
    """Whether every value of one type is a value of the other."""
    if narrow == wide or narrow.kind == "b":
        return True
    if is_floating(wide):
        if is_floating(narrow):
            return _DIGITS.get(narrow, 99) <= _DIGITS[wide] and _EXPONENT[narrow] <= _EXPONENT[wide]
        return narrow.kind in "iu" and 8 * narrow.itemsize - (narrow.kind == "i") <= _DIGITS[wide]
    if narrow.kind in "iu" and wide.kind in "iu":
        return bool(np.can_cast(narrow, wide))
    return False


_DIGITS = {float16: 11, bfloat16: 8, float32: 24, float64: 53}  # bits
_EXPONENT = {float16: 5, bfloat16: 8, float32: 8, float64: 11}


def permutation(node: Node) -> list[int] | None:
    """The axes of a Transpose; None where they are all, turned round, and it is not known how many."""
    if (perm := node.attributes.get("perm")) is not None:
        return list(perm)
    shape = node.outputs[0].shape
    return None if shape is None else list(range(len(shape)))[::-1]


def _swaps(node: Node) -> bool:
    return permutation(node) == [1, 0]


def _in_gemm(dtype: DType | None) -> bool:
    return dtype in (float32, float64)
