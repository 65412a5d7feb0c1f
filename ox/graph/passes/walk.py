"""A walk over a graph's nodes, in which values come to stand for others: what the rewriting passes share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ox.graph.ir import Array, Graph, Node, Value


class Walk:
    """Visits the nodes in order, each with its inputs as they are by now; `keep` or `stand_for` decides about it.

    Graph outputs stay the values that they are: where one would be another value, an Identity makes it, which
    `ox.graph.passes.cleanup.remove_identities` takes away where no memory is shared by that.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.changed = False
        self.producer: dict[Value, Node] = {}  # of what was kept so far
        self._outputs = set(graph.outputs)
        self._stands: dict[Value, Value] = {}
        self._kept: list[Node] = []

    def __iter__(self) -> Iterator[Node]:
        for node in self.graph.nodes:
            if self._stands:
                node.inputs = [None if v is None else self._stands.get(v, v) for v in node.inputs]
            yield node
        self.graph.nodes = self._kept

    def keep(self, node: Node) -> None:
        """Let the node stay, or add a new one before those that come."""
        self._kept.append(node)
        for v in node.outputs:
            self.producer[v] = node

    def stand_for(self, node: Node, values: Sequence[Value]) -> None:
        """Drop the node: from now on its outputs are these values."""
        self.changed = True
        for old, new in zip(node.outputs, values, strict=True):
            if old in self._outputs:
                self.keep(Node("Identity", "", [new], [old], where=node.where, module=node.module))
            else:
                self._stands[old] = new

    def maker(self, value: Value | None) -> Node | None:
        """The node that makes a value; None for inputs and constants."""
        return None if value is None else self.producer.get(value)

    def number(self, value: Value | None) -> Array | None:
        """The array of a constant of the code; None for everything else, parameters too."""
        if value is None or value in self.graph.owned:
            return None
        return self.graph.constants.get(value)

    def constant(self, array: Array, like: Value) -> Value:
        """A new constant, named after the value that it is made for."""
        made = Value(f"{like.name}/constant", array.dtype, array.shape, array.shape)
        self.graph.constants[made] = np.ascontiguousarray(array).reshape(array.shape)
        return made
