"""A task as an ONNX model: what the engines that are stock runtimes share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.dtypes import bfloat16
from ox.engines.engine import Array, Task
from ox.engines.index_bounds import check_bounds, index_bounds
from ox.engines.reference import Reference
from ox.errors import BoundsError, DeviceError, DTypeError, OxError, ShapeError
from ox.graph.ir import Graph, Value
from ox.graph.passes.cleanup import remove_dead
from ox.graph.passes.sizes import fixed_values
from ox.graph.writer.names import rename
from ox.graph.writer.workarounds import between_casts, types_of, with_both_limits
from ox.graph.writer.write import to_model


class OnnxTask:
    """The model of a task, and what a runtime has to do around it.

    State that a step leaves as it is (a learning rate) is no output of the model. Operators in bfloat16 compute in
    float32 between Casts, as eager ones do.
    """

    def __init__(self, task: Task) -> None:
        graph = task.graph.copy()
        places = {v: i for i, v in enumerate(task.graph.inputs)}
        state = [task.updates.get(v) for v in task.graph.outputs]
        self.updates = [None if v is None else places[v] for v in state]  # by output: the input that it is the next of
        if bfloat16 in types_of(graph):
            graph = between_casts(graph)
        graph = with_both_limits(graph)
        self.unchanged = self._unchanged(graph)
        self.asked = [i for i in range(len(graph.outputs)) if i not in self.unchanged]  # outputs of the model
        graph.outputs = [graph.outputs[i] for i in self.asked]
        self.state = [self.updates[i] for i in self.asked]  # by output of the model
        remove_dead(graph)
        self._watch(graph)
        fixed = fixed_values(graph)
        for v in graph.outputs:
            if v in fixed:
                v.dims = v.shape
        rename(graph)
        self.graph = graph
        self.inputs = [Expected(v) for v in graph.inputs]
        self.sizes = [v.shape if v in fixed else None for v in graph.outputs]
        self.model = to_model(graph)
        self._places = _places(self.model, graph)

    def _watch(self, graph: Graph) -> None:
        """Note which integers have to be in a range. Those that the graph computes become outputs of the model, as no
        runtime takes -1 for an error."""
        bounds = index_bounds(graph)
        places = {v: i for i, v in enumerate(graph.inputs)}
        self._given = [(places[b.value], b) for b in bounds if b.value in places]
        computed = [b for b in bounds if b.value not in places]
        new = dict.fromkeys(b.value for b in computed if b.value not in graph.outputs)
        graph.outputs += new
        self.state += [None] * len(new)
        self._computed = [(graph.outputs.index(b.value), b) for b in computed]

    def _unchanged(self, graph: Graph) -> set[int]:
        """The outputs that are an update of an input by itself."""
        copied = {n.outputs[0]: n.inputs[0] for n in graph.nodes if n.key == "Identity"}
        found = set()
        for i, (v, place) in enumerate(zip(graph.outputs, self.updates, strict=True)):
            if place is not None and copied.get(v) is graph.inputs[place]:
                found.add(i)
        return found

    def check(self, arrays: Sequence[Array], known: Sequence[Array | None]) -> None:
        """Raises DTypeError, ShapeError or DeviceError for arrays that are not what was recorded, and BoundsError for
        an index outside of a dimension; arrays that are `known` were checked before."""
        if len(arrays) != len(self.inputs):
            raise ShapeError("another number of arrays", expected=str(len(self.inputs)), got=str(len(arrays)))
        for expected, array, before in zip(self.inputs, arrays, known, strict=True):
            if array is not before:
                expected.check(array)
        check_bounds(self._given, arrays)

    def write_back(self, arrays: Sequence[Array], made: Sequence[Array]) -> list[Array]:
        """The results of a call, by what the model gave: the next state goes into the memory of the state.

        Raises:
            BoundsError, ShapeError: an index that the graph computed is out of its range; nothing is written.
        """
        check_bounds(self._computed, made)
        results: list[Any] = [None] * len(self.updates)
        for i, array in zip(self.asked, made[: len(self.asked)], strict=True):
            place = self.updates[i]
            if place is not None:
                np.copyto(arrays[place], array)
                array = arrays[place]
            results[i] = array
        for i in self.unchanged:
            results[i] = arrays[self.updates[i]]  # type: ignore[index]
        return results

    def error(self, what: str, error: Exception) -> OxError:
        """An error of a runtime with the line of the node that it names."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = next(
            (line for line in lines if not line.startswith(("Exception from", "Check '"))), type(error).__name__
        )
        kind = BoundsError if re.search("out of (range|data )?bound|out of range", text, re.IGNORECASE) else DeviceError
        return kind(what, where=self._place(text), got=text)

    def failure(self, what: str, error: Exception, arrays: Sequence[Array]) -> OxError:
        """The error of a run. Where an index is out of range that of eager code, which knows a class label from another
        index: the operators run once more, one by one."""
        told = self.error(what, error)
        if isinstance(told, BoundsError) or self._computed:  # not every runtime says what is wrong
            try:
                Reference().build(Task(self.graph))(arrays)
            except (BoundsError, ShapeError) as known:
                return known
        return told

    def _place(self, text: str) -> str:
        """The user's line of the node that a message names; an empty text if it names none."""
        words = [word for word in re.split(r"[\s'\"(),:]+", text) if word]
        for word in words:
            if word in self._places:
                return self._places[word]
        inlined = [re.match(r"_inlfunc_([^_]+(?:_\d+)?)_", word) for word in words]  # ONNX Runtime's names
        return next((self._places[m[1]] for m in inlined if m and m[1] in self._places), "")


class Expected:
    """Name, type and sizes of an input."""

    __slots__ = ("dtype", "name", "sizes")

    def __init__(self, value: Value) -> None:
        dims = value.shape if value.dims is None else value.dims
        self.name, self.dtype = value.name, value.dtype
        self.sizes = tuple(None if isinstance(d, str) else d for d in dims or ())

    def check(self, array: Array) -> None:
        """Raise an OxError for an array that does not fit."""
        if not isinstance(array, np.ndarray):
            raise DeviceError(
                f"input '{self.name}' is not on the CPU", got=type(array).__name__, hint="the engine 'native' for GPUs"
            )
        if array.dtype != self.dtype:
            raise DTypeError(f"input '{self.name}' has another type", expected=str(self.dtype), got=str(array.dtype))
        shape = array.shape
        if shape != self.sizes and (
            len(shape) != len(self.sizes)
            or any(size not in (None, n) for size, n in zip(self.sizes, shape, strict=True))
        ):
            wanted = ["any" if size is None else size for size in self.sizes]
            raise ShapeError(f"input '{self.name}' has another shape", expected=str(wanted), got=str(list(shape)))


def _places(model: Any, graph: Graph) -> dict[str, str]:
    """The user's line by the name of a node, and by the name of a function: of its only call, or the first of them."""
    found: dict[str, str] = {}
    calls: dict[str, list[str]] = {}
    for node in model.graph.node:
        if node.domain == "ox":
            calls.setdefault(node.op_type, []).append(node.doc_string)
        found[node.name] = node.doc_string
    for name, lines in calls.items():
        several = len(set(lines)) - 1
        found[name] = lines[0] + (f", or {several} other lines" if several else "")
    return found


def bits(array: Array) -> Array:
    """Memory that a runtime can read: contiguous, bfloat16 as its bits."""
    array = array if array.flags.c_contiguous else array.copy(order="C")
    return array.view(np.uint16) if array.dtype == bfloat16 else array
