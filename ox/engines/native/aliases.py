"""Values that are views of others."""

from __future__ import annotations

from ox.core.operator import OPS
from ox.engines.engine import Task
from ox.graph.ir import Node, Value


class Aliases:
    """Which values are views of others, and which states must keep their old values to the end of a call."""

    def __init__(self, task: Task, nodes: list[Node]) -> None:
        """
        Args:
            nodes: those that run by themselves; a fused region makes no views.
        """
        self.roots: dict[Value, Value] = {}
        for node in nodes:
            op = OPS.get(node.key)
            if op is not None and op.view and node.inputs and node.inputs[0] is not None:
                source = node.inputs[0]
                self.roots |= {v: self.roots.get(source, source) for v in node.outputs}
        viewed = {self.root(v) for v in task.graph.outputs if v not in task.updates}
        self.viewed = viewed | {self.root(new) for new in task.updates if new in self.roots}

    def root(self, value: Value) -> Value:
        """Whose memory a value has."""
        return self.roots.get(value, value)
