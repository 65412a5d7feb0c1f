"""Writes the body of an operator that ox has not, in operators of `ai.onnx`, for one call of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ox.errors import LoadError

OPSET = 23


class BodyWriter:
    """The nodes of one body, and what its call says.

    Raises LoadError, by `refuse`, for what a body does not cover.
    """

    def __init__(
        self, node: onnx.NodeProto, type_of: Callable[[str], onnx.TypeProto | None] = lambda name: None
    ) -> None:
        self.node, self._type_of = node, type_of
        self.nodes: list[onnx.NodeProto] = []
        self._attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self._count = 0
        self.inputs = [f"input_{i}" for i in range(len(node.input))]

    def input(self, place: int) -> str:
        """The name of an input; empty where the call leaves it out."""
        return self.inputs[place] if place < len(self.inputs) and self.node.input[place] else ""

    def rank(self, place: int) -> int | None:
        """How many dimensions an input has; None where the file does not tell: a body then asks at run time."""
        known = self._type_of(self.node.input[place]) if self.input(place) else None
        if known is None or not known.tensor_type.HasField("shape"):
            return None
        return len(known.tensor_type.shape.dim)

    def is_float(self, place: int) -> bool:
        """Whether an input is known to have floats."""
        known = self._type_of(self.node.input[place]) if self.input(place) else None
        floats = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
        return known is not None and known.tensor_type.elem_type in floats

    def is_rank(self, x: str, rank: int) -> str:
        """Whether a value has so many dimensions, at run time."""
        return self.add("Equal", self.add("Size", self.add("Shape", x)), self.constant(rank, np.int64))

    def samples(self, place: int) -> str:
        """An input [samples, features]; [features] is one sample."""
        x, rank = self.input(place), self.rank(place)
        if rank == 1:
            return self.add("Unsqueeze", x, self.ints(0))
        if rank is None:
            shape = self.add("Concat", self.ints(-1), self.add("Shape", x, start=-1), axis=0)
            return self.add("Reshape", x, shape)
        return x

    def last_sizes(self, x: str, count: int) -> str:
        """The last sizes behind the first dimension, after as many ones as it takes to make `count`."""
        padded = self.add("Concat", self.ints(*[1] * count), self.add("Shape", x, start=1), axis=0)
        return self.add("Slice", padded, self.ints(-count), self.ints(np.iinfo(np.int64).max), self.ints(0))

    def attribute(self, name: str, default: Any = None) -> Any:
        """Numbers, text or an array; ``<name>_as_tensor`` stands for lists of doubles."""
        value = self._attributes.get(f"{name}_as_tensor", self._attributes.get(name, default))
        if isinstance(value, onnx.TensorProto):
            return numpy_helper.to_array(value)
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            return [each.decode(errors="replace") for each in value]
        return value

    def needed(self, name: str) -> Any:
        """An attribute that the operator cannot do without."""
        value = self.attribute(name)
        if value is None:
            raise self.refuse(f"without {name}")
        return value

    def count(self, name: str) -> int:
        """An attribute that says how many there are, of which there is one at least."""
        value = self.needed(name)
        if not isinstance(value, int) or value < 1:
            raise self.refuse(f"with such a {name}", expected="a whole number above 0", got=repr(value))
        return value

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """One more node; the name of its first output."""
        self._count += 1
        made = f"{op}_{self._count}"
        self.nodes.append(helper.make_node(op, list(inputs), [made], **attributes))
        return made

    def several(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """One more node; the names of its first outputs."""
        names = [f"{self.add(op, *inputs, **attributes)}_{i}" for i in range(count)]
        del self.nodes[-1].output[:]
        self.nodes[-1].output.extend(names)
        return names

    def loop(self, rounds: int, start: str, step: Callable[[str], tuple[str, str]]) -> str:
        """A Loop over one float tensor: `step` writes what follows from it, whether there is another round and the next
        value."""
        outside, self.nodes = self.nodes, []
        going, following = step("state")
        ends = [helper.make_tensor_value_info(going, TensorProto.BOOL, None)]
        ends.append(helper.make_tensor_value_info(following, TensorProto.FLOAT, None))
        starts = [helper.make_tensor_value_info("round", TensorProto.INT64, [])]
        starts.append(helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []))
        starts.append(helper.make_tensor_value_info("state", TensorProto.FLOAT, None))
        body, self.nodes = helper.make_graph(self.nodes, "round", starts, ends), outside
        return self.add("Loop", self.constant(rounds, np.int64), self.constant(True, bool), start, body=body)

    def split(self, source: str, names: Sequence[str]) -> list[str]:
        """Equal parts along the last dimension, by these names."""
        self.nodes.append(helper.make_node("Split", [source], list(names), axis=-1, num_outputs=len(names)))
        return list(names)

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        self._count += 1
        made = f"constant_{self._count}"
        array = np.asarray(values, dtype)
        self.nodes.append(helper.make_node("Constant", [], [made], value=numpy_helper.from_array(array)))
        return made

    def ints(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def function(self, outputs: Sequence[str]) -> onnx.FunctionProto:
        """The body, with these names as what it returns."""
        return helper.make_function(
            self.node.domain, self.node.op_type, self.inputs, list(outputs), self.nodes,
            [helper.make_opsetid("", OPSET)],
        )  # fmt: skip

    def refuse(self, what: str, **said: Any) -> LoadError:
        """An error that names the call."""
        where = self.node.doc_string or self.node.name or None
        return LoadError(f"ox does not read {self.node.domain}.{self.node.op_type} {what}", where=where, **said)
