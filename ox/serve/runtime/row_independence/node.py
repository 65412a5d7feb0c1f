"""A node as the rules see it, and the table that they are entered in."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from ox.serve.runtime.row_independence.size import VALUE, Polynomial, Size, Symbols
from ox.serve.runtime.row_independence.state import Mixed, Mixes, State, Tensor

Attributes: TypeAlias = dict[str, AttributeProto]
Scope: TypeAlias = ChainMap[str, State]
MAX_INTEGERS = 1024  # elements of a tensor that are followed one by one
MAX_FLOATS = 16  # of a vector: the scales of a Resize

ONNX, ML, CONTRIB = "", "ai.onnx.ml", "com.microsoft"


class Walker(Protocol):
    """What rules with graphs inside need of the walk."""

    symbols: Symbols

    def graph(self, graph: GraphProto, inputs: Sequence[State], scope: Scope) -> list[State]: ...

    def constant(self, tensor: TensorProto) -> Tensor: ...


@dataclass(slots=True)
class Node:
    """One node: what goes in, what its attributes are. `version` is that of its domain."""

    proto: NodeProto
    version: int
    inputs: list[Tensor | None]
    outside: Attributes  # attributes of the function around it
    walker: Walker
    scope: Scope

    @property
    def op(self) -> str:
        return self.proto.op_type

    @property
    def symbols(self) -> Symbols:
        return self.walker.symbols

    @property
    def count(self) -> int:
        """Its outputs."""
        return len(self.proto.output)

    def attribute(self, name: str) -> AttributeProto | None:
        for attribute in self.proto.attribute:
            if attribute.name == name:
                return self.outside.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        return None

    def integer(self, name: str, default: int) -> int:
        found = self.attribute(name)
        return default if found is None else int(found.i)

    def ints(self, name: str) -> list[int] | None:
        found = self.attribute(name)
        return None if found is None else list(found.ints)

    def text(self, name: str, default: str = "") -> str:
        found = self.attribute(name)
        return default if found is None else found.s.decode(errors="replace")

    def subgraph(self, name: str) -> GraphProto:
        found = self.attribute(name)
        if found is None:
            raise Mixes(f"it has no {name}")
        return found.g

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def __getitem__(self, index: int) -> Tensor:
        if index >= len(self.inputs) or (tensor := self.inputs[index]) is None:
            raise Mixes(f"input {index} is missing")
        return tensor

    def get(self, index: int) -> Tensor | None:
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def given(self) -> list[Tensor]:
        return [tensor for tensor in self.inputs if tensor is not None]

    def fixed(self, *indices: int) -> None:
        """Raises Mixes where one of these inputs depends on the rows."""
        for index in indices:
            tensor = self.get(index)
            if tensor is not None and tensor.varies:
                raise Mixes(f"its input '{self.proto.input[index]}' depends on the rows")

    def elements(self, index: int) -> list[Size] | None:
        """The elements of an input that says sizes, axes and the like; None if not even their number is known.

        Those that are not known are symbols.
        """
        tensor = self[index]
        if tensor.integers is not None:
            return list(tensor.integers.ravel().tolist())
        if tensor.axis is not None:
            raise Mixes(f"its input '{self.proto.input[index]}' depends on the rows")
        if tensor.dims is None or any(not isinstance(size, int) for size in tensor.dims):
            return None
        count = int(np.prod([size for size in tensor.dims if isinstance(size, int)]))
        return None if count > MAX_INTEGERS else [self.symbols.fresh(VALUE) for _ in range(count)]

    def numbers(self, index: int) -> list[int] | None:
        """The elements of an input if all of them are known numbers."""
        values = self.elements(index)
        if values is None or any(isinstance(value, Polynomial) for value in values):
            return None
        return [value for value in values if isinstance(value, int)]

    def axes(self, name: str, index: int) -> list[int] | None:
        """Axes from an attribute, or from an input since some opset; [] where neither says any, None if unknown."""
        found = self.ints(name)
        if found is not None:
            return found
        return self.numbers(index) if self.has(index) else []


def axis_of(value: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= value < max(rank, 1):
        raise Mixes(f"there is no axis {value}")
    return value + rank if value < 0 else value


Result: TypeAlias = State | Sequence[State]
Rule: TypeAlias = Callable[[Node], Result]
Entered = TypeVar("Entered", bound=Rule)
RULES: dict[tuple[str, str], Rule] = {}
REFUSED: dict[tuple[str, str], str] = {}
ALWAYS_REFUSED: set[tuple[str, str]] = set()  # refused, and also where no input depends on the rows
COUNTING: set[tuple[str, str]] = set()  # whose rules know what to do with integers that hold B
COLUMNS: set[tuple[str, str]] = set()  # whose rules know what to do with indices that begin with a row's own number
ROW_NUMBERED: set[tuple[str, str]] = set()  # whose rules know what to do with rows that hold their own number


def rule(
    *names: str, domain: str = ONNX, counts: bool = False, places: bool = False, columns: bool = False
) -> Callable[[Entered], Entered]:
    """Enters a rule for these operators.

    Args:
        counts: it takes integers that tell how many rows there are; to others they are refused.
        places: it takes rows that hold their own number; to others they are refused.
        columns: it takes rows that begin with their own number; to others they are refused.
    """

    def enter(function: Entered) -> Entered:
        for name in names:
            RULES[domain, name] = function
            if counts:
                COUNTING.add((domain, name))
            if places:
                ROW_NUMBERED.add((domain, name))
            if columns:
                COLUMNS.add((domain, name))
        return function

    return enter


def refuse(names: Iterable[str], why: str, domain: str = ONNX, regardless: bool = False) -> None:
    """Enters why rows cannot be followed through these operators."""
    for name in names:
        REFUSED[domain, name] = why
        if regardless:
            ALWAYS_REFUSED.add((domain, name))


def same_rows(node: Node, *indices: int, axis: int = 0) -> Tensor:
    """The rows that these inputs share on one axis; of other inputs none may depend on the rows.

    Raises:
        Mixes: one of them has its rows elsewhere, other ones, or none.
    """
    lead: Tensor | None = None
    for index, tensor in enumerate(node.inputs):
        if tensor is None:
            continue
        if index not in indices:
            node.fixed(index)
            continue
        if tensor.counts:
            raise Mixes("the number of rows becomes data")
        if tensor.axis is None:
            raise Mixes(f"its input '{node.proto.input[index]}' is not there once for each row")
        if tensor.axis != axis:
            raise Mixes("the rows lie on an axis over which it works")
        lead = lead or tensor
        if tensor.outer != lead.outer or tensor.sizes[axis] != lead.sizes[axis]:
            raise Mixes("rows meet other rows")
    if lead is None:
        raise Mixes("no input carries the rows")
    return lead


def batched(node: Node, rank: int | None = None, *indices: int, axis: int = 0) -> Tensor:
    """`same_rows` for an output of unknown sizes besides the rows; without rows a constant."""
    if not any(tensor.varies for tensor in node.given):
        return Tensor(None if rank is None else tuple(node.symbols.fresh() for _ in range(rank)))
    lead = same_rows(node, *(indices or (0,)), axis=axis)
    dims = [node.symbols.fresh() for _ in range(lead.rank if rank is None else rank)]
    return Tensor((*dims[:axis], lead.sizes[axis], *dims[axis + 1 :]), axis, lead.outer)


MIXED = Mixed("one of its outputs is not followed")
