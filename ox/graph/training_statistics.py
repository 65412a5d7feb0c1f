"""BatchNormalization in training mode in files of other exporters, held back from writing over what it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, helper

from ox.graph.reader.model_file import graphs_of, nodes_of, subgraphs

STATISTICS = (3, 4)  # inputs of BatchNormalization: the running mean and variance before


def overwrites(model: ModelProto) -> bool:
    """Whether a file has BatchNormalization in training mode whose statistics are no copies: see `keep_statistics`."""
    return any(_training(node) for node in nodes_of(model)) and _Copies(model).add(change=False)


def keep_statistics(model: ModelProto) -> bool:
    """Has each BatchNormalization in training mode read copies of its running statistics.

    ONNX Runtime's kernel (1.32 and before) writes the new ones over the old ones where those are not outputs of the
    model: over the arrays that the caller sent, over what other nodes read, and over initializers, so that a run
    changes the next one. A copy of an initializer must depend on what a run is given, or it is made once, when the file
    is loaded. So a copy is a Where of the same two, by a truth that no optimizer knows.

    Args:
        model: is changed.

    Returns:
        whether there was one.
    """
    return any(_training(node) for node in nodes_of(model)) and _Copies(model).add(change=True)


def _training(node: NodeProto) -> bool:
    return node.op_type == "BatchNormalization" and any(
        attribute.name == "training_mode" and (attribute.i or attribute.ref_attr_name) for attribute in node.attribute
    )


class _Copies:
    """Adds copies to the graphs and functions of a model."""

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        graphs = list(graphs_of(model.graph))
        self.stored = {tensor.name for graph in graphs for tensor in graph.initializer}
        self.readers = Counter(name for node in nodes_of(model) for name in node.input)
        self.readers.update(info.name for graph in graphs for info in graph.output)
        used = self.readers.keys() | self.stored | {info.name for graph in graphs for info in graph.input}
        used |= {name for node in nodes_of(model) for name in node.output}
        self.names = (name for name in map("training_statistics_{}".format, count()) if name not in used)

    def add(self, change: bool) -> bool:
        """Whether a copy is missing; it is then added, if wanted."""
        missing = [self._visit(owner, change) for owner in (self.model.graph, *self.model.functions)]
        return any(missing)

    def _visit(self, owner: GraphProto | FunctionProto, change: bool) -> bool:
        producers = {name: node for node in owner.node for name in node.output}
        nodes: list[NodeProto] = []
        missing, added = False, 0
        for node in owner.node:
            for inside in subgraphs(node):
                missing |= self._visit(inside, change)
            places = [
                place for place in STATISTICS if _training(node) and not self._is_copy(node.input[place], producers)
            ]
            missing |= bool(places)
            if places and change:
                nodes += self._copied(node, places)
                added += 1
            nodes.append(node)
        if added:
            del owner.node[:]
            owner.node.extend(nodes)
        return missing

    def _is_copy(self, name: str, producers: dict[str, NodeProto]) -> bool:
        """Whether only this reads it, and it is what `keep_statistics` or a file of ox has made of something."""
        node = producers.get(name)
        if node is None or self.readers[name] > 1:
            return False
        if node.op_type == "Where":
            return bool(node.input[1] == node.input[2])
        return node.op_type == "Max" and len(node.input) == 1 and node.input[0] not in self.stored

    def _copied(self, node: NodeProto, places: list[int]) -> Iterator[NodeProto]:
        """The nodes that copy statistics; they are read instead."""
        first, last, sample, total, unknown = (next(self.names) for _ in range(5))
        yield helper.make_node("Constant", [], [first], value_ints=[0])
        yield helper.make_node("Constant", [], [last], value_ints=[1])
        yield helper.make_node("Slice", [node.input[0], first, last, first], [sample])
        yield helper.make_node("ReduceSum", [sample], [total], keepdims=0)
        yield helper.make_node("IsNaN", [total], [unknown])
        for place in places:
            copy = next(self.names)
            yield helper.make_node("Where", [unknown, node.input[place], node.input[place]], [copy])
            node.input[place] = copy
