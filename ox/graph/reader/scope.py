"""Where a name of a file means something: a graph, a subgraph that sees the graph around it, a function's body."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import onnx

from ox.errors import LoadError
from ox.graph.ir import Array, Graph, Value


@dataclass
class Scope:
    """Names and their values while nodes are read into `graph`.

    Attributes:
        version: the opset of `ai.onnx` that these nodes are written in.
        around: for a subgraph, the scope whose names it sees; what it reads there becomes a capture.
        caller: for a function's body, the scope of the call, into whose graph it is written.
        attributes: of the function call, for the attributes of its body that refer to them.
        argument_names: for a function's body, what the call names where the body names its inputs.
        absent: for a function's body, its inputs that the call leaves out.
        ends: names that the graph or body gives as outputs.
        active: the functions that are being written out here, lest one calls itself.
    """

    graph: Graph
    version: int
    outer: Scope | None = None
    caller: Scope | None = None
    attributes: dict[str, onnx.AttributeProto] = field(default_factory=dict)
    argument_names: dict[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    output_names: frozenset[str] = frozenset()
    active: frozenset[Any] = frozenset()
    values: dict[str, Value] = field(default_factory=dict)
    types: dict[str, onnx.TypeProto] = field(default_factory=dict)  # results of inference, by name
    captured: dict[Value, Value] = field(default_factory=dict)  # by the value outside; in the order of the captures

    @property
    def depth(self) -> int:
        """How many subgraphs deep this is."""
        further = self.caller or self.outer
        return (self.outer is not None) + (0 if further is None else further.depth)

    def new(self, name: str, role: str) -> Value:
        """A value that is made here. Raises LoadError where there is one of that name."""
        if name in self.values:
            raise LoadError(f"the value '{name}' is made twice", where=f"{role} '{name}'")
        self.values[name] = value = Value(name)
        return value

    def lookup(self, name: str) -> Value | None:
        """The value of a name, captured if it comes from outside; None if it does not exist."""
        value = self.values.get(name)
        if value is None and self.outer is not None:
            outside = self.outer.lookup(name)
            if outside is not None:
                value = self._capture(outside, name)
                self.values[name] = value
        return value

    def constant(self, name: str) -> Array | None:
        """The array of a name, if it is known and constant."""
        value = self.values.get(name)
        if value is None:
            return None if self.outer is None else self.outer.constant(name)
        return self._array_of(value)

    def _array_of(self, value: Value) -> Array | None:
        outside = next((outer for outer, inner in self.captured.items() if inner is value), None)
        if outside is not None and self.outer is not None:
            return self.outer._array_of(outside)
        return None if value in self.graph.overridable else self.graph.constants.get(value)

    def is_absent(self, name: str) -> bool:
        """Whether a name is an input of the function around, which its call leaves out."""
        return name in self.absent or (self.outer is not None and self.outer.is_absent(name))

    def _capture(self, outside: Value, name: str) -> Value:
        if outside not in self.captured:
            inner = Value(name, outside.dtype, outside.dims, outside.shape)
            self.captured[outside] = inner
            self.graph.captures.append(inner)
        return self.captured[outside]

    @property
    def root(self) -> Scope:
        """The scope of the whole model's graph."""
        scope = self
        while (further := scope.caller or scope.outer) is not None:
            scope = further
        return scope

    def add_weight(self, name: str, array: Array) -> Value:
        """A weight: a constant of the main graph, and its value here."""
        root = self.root
        free, k = name, 1
        while free in root.values and self is not root:
            free, k = f"{name}_{k}", k + 1
        value = root.new(free, "initializer")
        value.dtype, value.dims, value.shape = array.dtype, array.shape, array.shape
        root.graph.constants[value] = array
        root.graph.owned.add(value)
        return self.resolve_root_value(value, name)

    def resolve_root_value(self, value: Value, name: str) -> Value:
        """What stands here for a value of the whole model's graph."""
        if self.caller is not None:
            return self.caller.resolve_root_value(value, name)
        return value if self.outer is None else self._capture(self.outer.resolve_root_value(value, name), name)
