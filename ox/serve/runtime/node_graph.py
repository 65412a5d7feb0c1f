"""The graph of a model that is rewritten: who makes a tensor, who takes it, and edits that keep this up to date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, numpy_helper

# They pass NaN on, which stands for a size that is not known. Comparisons, Max and conversions of a vector do not.
FROM_SIZES = {"Shape", "Slice", "Gather", "Cast", "Sqrt", "Div", "Mul", "Squeeze", "Unsqueeze"}
DEEPEST, MOST_SIZES = 16, 8  # operators in a row, and numbers of a shape


class NodeGraph:
    """A graph without subgraphs.

    Args:
        model: is changed.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model, self._graph = model, model.graph
        self.nodes: list[NodeProto] = list(model.graph.node)
        self._index()
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        infos = (*inferred.value_info, *inferred.input, *inferred.output)
        self._shapes: dict[str, Sequence[Any]] = {info.name: info.type.tensor_type.shape.dim for info in infos}

    def serialized(self) -> bytes:
        """The file's bytes; weights in files beside it stay there."""
        del self._graph.node[:]
        self._graph.node.extend(self.nodes)
        del self._graph.value_info[:]
        return bytes(self.model.SerializeToString())

    def factor(self, node: NodeProto) -> float | None:
        """The number by which a Mul or Div multiplies; None for others."""
        if node.op_type not in ("Mul", "Div"):
            return None
        values = [self._known(name) for name in node.input]
        numbers = [value for value in values if value is not None and value.size == 1]
        if len(numbers) != 1 or (node.op_type == "Div" and values[1] is None):
            return None
        number = float(numbers[0].reshape(()))
        return number if node.op_type == "Mul" else 1.0 / number

    def producer(self, name: str) -> NodeProto | None:
        """The node that computes a tensor."""
        return self._producers.get(name)

    def _index(self) -> None:
        self._producers = {name: node for node in self.nodes for name in node.output}
        self._consumers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.input):
                self._consumers.setdefault(name, []).append(node)
        self._stored = {tensor.name: tensor for tensor in self._graph.initializer}

    def _is_constant(self, name: str) -> bool:
        node = self._producers.get(name)
        return name in self._stored or (node is not None and node.op_type == "Constant")

    def value(self, name: str) -> np.ndarray[Any, Any] | None:
        """A constant that lies in the file itself."""
        tensor, node = self._stored.get(name), self._producers.get(name)
        if node is not None and node.op_type == "Constant":
            tensor = next((each.t for each in node.attribute if each.name == "value"), None)
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            return None
        return numpy_helper.to_array(tensor)

    def _known(self, name: str, depth: int = 0) -> np.ndarray[Any, Any] | None:
        """A constant, or a few numbers that follow from constants and from sizes that are known without a run."""
        node = self._producers.get(name)
        if node is None or node.op_type not in FROM_SIZES or depth == DEEPEST:
            return self.value(name)
        if node.op_type == "Shape":
            dims = self._shapes.get(node.input[0], ())
            value = np.array([dim.dim_value or np.nan for dim in dims])  # NaN stands for a size that is not known
            given = {each.name: each.i for each in node.attribute}
            return value[given.get("start", 0) : given.get("end")] if dims else None
        inputs = [self._known(each, depth + 1) for each in node.input]
        if any(each is None or each.size > len(inputs) * MOST_SIZES for each in inputs):
            return None
        from onnx.reference import ReferenceEvaluator

        with np.errstate(all="ignore"):
            results: Any = ReferenceEvaluator(node).run(None, dict(zip(node.input, inputs, strict=True)))
        found = np.asarray(results[0])
        return None if found.size == 1 and np.isnan(found).any() else found

    def _constant(self, name: str, value: list[int]) -> None:
        if all(tensor.name != name for tensor in self._graph.initializer):
            self._graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))

    def _place(self, node: NodeProto) -> int:
        return next(place for place, each in enumerate(self.nodes) if each is node)

    def _replace(self, old: str, new: str) -> None:
        """Whoever takes `old` takes `new`; an output of the graph keeps its name."""
        if any(info.name == old for info in self._graph.output):
            producer = self._producers[new]
            del self.nodes[self._place(self._producers[old])]
            producer.output[list(producer.output).index(new)] = old
            old, new = new, old
        for node in self.nodes:
            for place, name in enumerate(node.input):
                if name == old:
                    node.input[place] = new
        self._index()

    def _remove_unused(self) -> None:
        """Drops nodes, weights and inputs that no output needs."""
        needed = {info.name for info in self._graph.output}
        kept = []
        for node in reversed(self.nodes):
            if any(name in needed for name in node.output):
                kept.append(node)
                needed.update(node.input)
        self.nodes = kept[::-1]
        for field in (self._graph.initializer, self._graph.input):
            unused = [each for each in field if each.name not in needed]
            for each in unused:
                field.remove(each)
        self._index()
