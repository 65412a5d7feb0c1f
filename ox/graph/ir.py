"""What was recorded: values, nodes, a graph. Plain data; recording, passes, reading and writing stand beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ox.dtypes import DType

Array = np.ndarray[Any, Any]
Key = tuple[Any, ...]


@dataclass(eq=False, slots=True)
class Value:
    """One tensor of a graph: its name, type and sizes (a string names a size that may differ from run to run)."""

    name: str
    dtype: DType | None = None
    dims: tuple[int | str, ...] | None = None
    shape: tuple[int, ...] | None = None  # in the run that was recorded

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.dims) if self.dims is not None else ''}"


@dataclass(eq=False, slots=True)
class Node:
    """One call of an operator."""

    op_type: str
    domain: str
    inputs: list[Value | None]
    outputs: list[Value]
    attributes: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    where: str = ""  # the user's line
    module: str = ""  # the module path

    @property
    def place(self) -> str:
        """Module path and line, as errors show them."""
        return ", ".join(part for part in (self.module, self.where) if part)

    @property
    def key(self) -> str:
        """The name of the operator in `ox.core.operator.OPS`."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    def subgraphs(self) -> Iterator[tuple[str, Graph]]:
        """The graphs among the attributes, by name: the branches of an If, the body of a Loop or Scan."""
        for name, value in self.attributes.items():
            if isinstance(value, Graph):
                yield name, value

    @property
    def captured(self) -> int:
        """How many of the inputs, the last ones, are what subgraphs read from outside: a file does not list them."""
        return max((len(graph.captures) for _, graph in self.subgraphs()), default=0)


@dataclass(eq=False, slots=True)
class Graph:
    """Inputs, outputs, nodes in an order in which they can run, and constants by value.

    `owned` are the constants that belong to the model (parameters, buffers): they keep their names through every pass
    and become initializers of a file; the others are numbers of the code, and become Constant nodes.

    A subgraph (the branch of an If, the body of a Loop or Scan) has `captures`: what it reads of the graph around it.
    They stand for the last inputs of the node that holds it, in order; both branches of an If list the same number.
    """

    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[Value, Array] = field(default_factory=dict)
    owned: set[Value] = field(default_factory=set)
    name: str = "ox"
    captures: list[Value] = field(default_factory=list)
    overridable: list[Value] = field(default_factory=list)  # what is owned, and listed as an input all the same
    declared_inputs: tuple[str, ...] = ()  # names of both, in the file's order; empty: what is overridable comes last
    tape: Any = None  # of a body that was recorded from Python code; ox.core.vjp. A copy has none

    def producers(self) -> dict[Value, Node]:
        """Which node makes each value."""
        return {value: node for node in self.nodes for value in node.outputs}

    def reads(self) -> Counter[Value | None]:
        """How often each value is read: by nodes, and as an output of the graph."""
        return Counter([*(value for node in self.nodes for value in node.inputs), *self.outputs])

    def values(self) -> Iterator[Value]:
        """Every value once: inputs, captures, constants, then what nodes make. Not those of subgraphs."""
        yield from self.inputs
        yield from self.captures
        yield from self.constants
        for node in self.nodes:
            yield from node.outputs

    def replace(self, old: Value, new: Value) -> None:
        """Let everything that read `old` read `new`."""
        for node in self.nodes:
            node.inputs = [new if v is old else v for v in node.inputs]
        self.outputs = [new if v is old else v for v in self.outputs]

    def all_nodes(self) -> Iterator[Node]:
        """Every node, those of subgraphs at any depth too, each behind the node that holds it."""
        for node in self.nodes:
            yield node
            for _, graph in node.subgraphs():
                yield from graph.all_nodes()

    def captured_constants(
        self, node: Node, inside: Graph, around: Mapping[Value, Array] = MappingProxyType({})
    ) -> dict[Value, Array]:
        """The numbers of those captures of a subgraph that stand for constants.

        Args:
            node: the one of this graph that holds it.
            around: the same of this graph, where it is a subgraph.
        """
        known = {**self.constants, **around}
        outside = node.inputs[len(node.inputs) - len(inside.captures) :]
        pairs = zip(inside.captures, outside, strict=True)
        return {capture: known[value] for capture, value in pairs if value is not None and value in known}

    def copy(self) -> Graph:
        """A copy with its own values and nodes, which passes may change; the arrays are shared."""
        made = {v: replace(v) for v in self.values()}

        def of(v: Value | None) -> Value | None:
            return None if v is None else made[v]

        nodes = [
            replace(
                n,
                inputs=[of(v) for v in n.inputs],
                outputs=[made[v] for v in n.outputs],
                attributes={k: a.copy() if isinstance(a, Graph) else a for k, a in n.attributes.items()},
            )
            for n in self.nodes
        ]
        return Graph(
            [made[v] for v in self.inputs],
            [made[v] for v in self.outputs],
            nodes,
            {made[v]: array for v, array in self.constants.items()},
            {made[v] for v in self.owned},
            self.name,
            [made[v] for v in self.captures],
            [made[v] for v in self.overridable],
            self.declared_inputs,
        )

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for one tensor an input, then one a capture; `ox.graph.replay`."""
        from ox.graph.replay import replay

        return replay(self, inputs)

    def emit(self, values: Sequence[Value]) -> None:
        """Make these inputs outputs as well, each through its own node."""
        for v in values:
            made = Value(f"{v.name}/kept", v.dtype, v.dims, v.shape)
            if self.tape is not None:
                self.tape.results.append(self.tape.formals[self.inputs.index(v)])
            self.nodes.append(Node("Identity", "", [v], [made]))
            self.outputs.append(made)

    def loose(self) -> set[int]:
        """The outputs that no gradient follows: the Python code that was recorded let none pass."""
        results = () if self.tape is None else self.tape.results
        return {i for i, y in enumerate(results) if y.node is None}

    def share(self, stand_for: Sequence[Key], outside: Sequence[Key]) -> None:
        """List one capture for each value of `outside`, in that order.

        Args:
            stand_for: the value outside of each capture until now, first in its key; two captures may stand for one.
        """
        own: dict[Key, Value] = {}
        for capture, key in zip(self.captures, stand_for, strict=True):
            if own.setdefault(key, capture) is not capture:
                self.replace(capture, own[key])
        self.captures = [own.get(key) or replace(key[0]) for key in outside]
