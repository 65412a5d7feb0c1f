"""What was recorded: values, nodes, a graph. Plain data; recording, passes, reading and writing stand beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ox.dtypes import DType

Array = np.ndarray[Any, Any]


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
        """The name under which `ox.ops.OPS` knows the operator."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


@dataclass(eq=False, slots=True)
class Graph:
    """Inputs, outputs, nodes in an order in which they can run, and constants by value.

    `owned` are the constants that belong to the model (parameters, buffers): they keep their names through every pass
    and become initializers of a file; the others are numbers of the code, and become Constant nodes.
    """

    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[Value, Array] = field(default_factory=dict)
    owned: set[Value] = field(default_factory=set)
    name: str = "ox"

    def producers(self) -> dict[Value, Node]:
        """Which node makes each value."""
        return {value: node for node in self.nodes for value in node.outputs}

    def values(self) -> Iterator[Value]:
        """Every value once: inputs, constants, then what nodes make."""
        yield from self.inputs
        yield from self.constants
        for node in self.nodes:
            yield from node.outputs

    def replace(self, old: Value, new: Value) -> None:
        """Let everything that read `old` read `new`."""
        for node in self.nodes:
            node.inputs = [new if v is old else v for v in node.inputs]
        self.outputs = [new if v is old else v for v in self.outputs]
