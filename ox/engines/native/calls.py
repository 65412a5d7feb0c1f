"""One node as a prepared call: its operator, attributes and executor are looked up once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ox.core import explain, operator
from ox.core.mode import switch_mode
from ox.core.operator import OPS, Operator
from ox.core.subgraph import Control
from ox.devices import Accelerated, accelerated
from ox.devices.dispatch import Undecided
from ox.devices.executors import dispatch
from ox.engines.class_check import check_classes, reads_classes
from ox.errors import LoadError, OxError
from ox.graph.ir import Node
from ox.ops.control.sequence import OfSequences

Array = Any
Check = Callable[[list[Array], dict[str, Any]], None]


class KernelCall:
    """A call of an operator's kernel on arrays, by the executor that eager calls choose. Raises what they raise."""

    def __init__(self, op: Operator, node: Node) -> None:
        self.op, self.node = op, node
        self.attributes = dict(node.attributes)
        if op.takes_output_count:
            self.attributes["outputs"] = len(node.outputs)
        self.check: Check | None = check_classes if reads_classes(node.key) else None
        self._accelerated: Accelerated | None = None
        self._types: list[Any] | None = None

    def results(self, arrays: list[Array]) -> tuple[Array, ...]:
        """The node's outputs for one array for each input, None for what is left out."""
        try:
            faster = self.accelerated_for(arrays)
            if self.check is not None:
                self.check(arrays, self.attributes)
            result = dispatch(self.op, list(arrays), self.attributes, faster)
        except Exception as error:
            raise self.explained(arrays, error) from (None if isinstance(error, OxError) else error)
        if type(result) is np.ndarray:
            return (result,)
        return tuple(map(_as_array, result)) if type(result) is tuple else (_as_array(result),)

    def accelerated_for(self, arrays: list[Array]) -> Accelerated | None:
        """The faster executor for these element types; they are checked when they change."""
        types = [None if a is None else a.dtype for a in arrays]
        if types != self._types:
            self.op.schema.check_types(arrays)
            self._accelerated, self._types = accelerated(self.op, arrays), types
        if isinstance(self._accelerated, Undecided):  # after a call on a GPU
            return self._accelerated.decided(arrays)
        return self._accelerated

    def explained(self, arrays: list[Array], error: Exception) -> OxError:
        """The error to raise for a call that failed: it names the user's line."""
        if isinstance(error, OxError):
            error.where = self.node.place or error.where
            return error
        tensors = tuple(None if a is None else operator.make_tensor(a) for a in arrays)
        made = explain.call(self.op, tensors, self.node.attributes, error)
        made.where = self.node.place or made.where
        return made


class TensorCall:
    """A call of an operator that runs other operators (If, Loop, Scan), or of one on sequences, which are lists.

    What it returns shares no memory with what it was given.
    """

    def __init__(self, op: Operator, node: Node) -> None:
        self.op, self.node = op, node

    def results(self, arrays: list[Array]) -> tuple[Array, ...]:
        """As `KernelCall.results`; a sequence is a list of arrays."""
        given = [_wrapped(a) for a in arrays]
        plain = {"grad": False, "recording": None, "autocast": None, "executor": None, "observer": None, "watch": None}
        try:
            with switch_mode(**plain):
                made = self.op(*given, outputs=len(self.node.outputs), **self.node.attributes)
        except OxError as error:
            error.where = error.where or self.node.place
            raise
        several = made if isinstance(made, tuple) else (made,)
        return tuple(_copied(y) for y in several)


def call_of(node: Node) -> KernelCall | TensorCall:
    """The prepared call of a node.

    Raises:
        LoadError: ox has no such operator.
    """
    op = OPS.get(node.key)
    if op is None:
        raise LoadError(f"ox has no operator {node.key}", where=node.place or node.name)
    return TensorCall(op, node) if isinstance(op, (Control, OfSequences)) else KernelCall(op, node)


def _as_array(result: Any) -> Array:
    return np.asarray(result) if isinstance(result, np.generic) else result


def _wrapped(value: Any) -> Any:
    if value is None:
        return None
    return [_wrapped(each) for each in value] if isinstance(value, list) else operator.make_tensor(value)


def _copied(value: Any) -> Any:
    if value is None:
        return None
    return [_copied(each) for each in value] if isinstance(value, list) else value.array.copy()
