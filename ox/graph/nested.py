"""A recording inside a recording: the branch of an If, the body of a Loop or Scan, with what it reads from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ox.errors import RecordError
from ox.graph.form import Graph, Node, Value
from ox.graph.record import Recorded, Recording
from ox.ops import operator
from ox.ops.mode import switched
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor

SMALL = 64  # elements; a constant of the code that large is made anew inside, not read from outside


class Nested(Recording):
    """Collects a subgraph. A tensor of the recording around it, or a parameter, becomes a capture when it is read."""

    def __init__(self, outer: Recording) -> None:
        super().__init__()
        self.outer: Recording = outer
        self.captured: dict[Value, Tensor] = {}  # by the value outside
        self._inner: dict[Value, Value] = {}

    def formal(self, name: str, array: Any, changing: tuple[bool, ...]) -> Tensor:
        """A new input of the subgraph, with the value that it has in this run."""
        tensor = operator.make_tensor(array.copy())  # the body may write to it
        value = self._name(Value("", array.dtype, None, array.shape), name)
        tensor._recorded = Recorded(self, value, changing, tensor.version)
        self.graph.inputs.append(value)
        return tensor

    def value(self, tensor: Tensor) -> Value:
        recorded = tensor._recorded
        if recorded is not None and recorded.recording is not self and self.covers(recorded.recording):
            return self._capture(tensor)
        if recorded is None or not self.covers(recorded.recording):
            outside = self.outer.holds(tensor)
            if outside is not None and (tensor.array.size > SMALL or self._is_owned(outside)):
                return self._capture(tensor)
        return super().value(tensor)

    def _is_owned(self, value: Value) -> bool:
        recording: Recording | None = self.outer
        while recording is not None:
            if value in recording.graph.owned:
                return True
            recording = recording.outer
        return False

    def _capture(self, tensor: Tensor) -> Value:
        outside = self.outer.value(tensor)
        if outside not in self._inner:
            inner = Value("", outside.dtype, outside.dims, outside.shape)
            self.captured[outside], self._inner[outside] = tensor, self._name(inner, outside.name)
        return self._inner[outside]

    def alias(self, new: Tensor, old: Tensor) -> None:
        recorded = new._recorded
        outside = recorded is not None and recorded.recording is not self and self.covers(recorded.recording)
        if outside or (recorded is None and self.outer.holds(new) is not None):
            raise RecordError(
                "a branch or a loop's body writes in place to a tensor from outside of it",
                where=users_line(3) or None,
                expected="functions without side effects",
                hint="return the new value from the function, and write it outside",
            )
        super().alias(new, old)

    def close(self, outputs: Sequence[Tensor]) -> Graph:
        """Hand over the subgraph; each output is made by a node of its own."""
        graph = self.graph
        ends = set(self._inner.values()) | set(graph.inputs)
        for tensor in outputs:
            value = self.value(tensor)
            if value in ends or value in graph.constants or value in self._inner.values():
                made = self._name(Value("", value.dtype, value.dims, value.shape), "output")
                graph.nodes.append(Node("Identity", "", [value], [made]))
                value = made
            ends.add(value)
            graph.outputs.append(value)
        graph.captures = list(self._inner.values())
        return graph


def body(
    outer: Recording, function: Callable[..., Any], inputs: Sequence[tuple[str, Any, tuple[bool, ...]]]
) -> tuple[Graph, list[Tensor], list[tuple[bool, ...]]]:
    """Run `function` once and return what ran as a subgraph of `outer`.

    Args:
        inputs: for each formal input a name, its array in this run, and which of its sizes may change.

    Returns:
        The subgraph, the tensors that its captures are outside, and which sizes of each output may change.

    Raises:
        RecordError: a result that is no tensor, a write to a tensor from outside, random numbers drawn inside.
    """
    from ox.random import default_generator

    nested = Nested(outer)
    counter = default_generator.counter
    try:
        given = [nested.formal(*each) for each in inputs]
        with switched(recording=nested):
            results = several(function(*given))
            if default_generator.counter is not counter:
                raise RecordError(
                    "random numbers drawn inside a recorded branch or loop would be the same ones each time",
                    where=users_line(2) or None,
                    hint="draw them before, x = ox.rand(...), and read x inside",
                )
            graph = nested.close(results)
            changing = [nested.changing(y) for y in results]
    finally:
        default_generator.counter = counter
        nested.forget()
    return graph, list(nested.captured.values()), changing


def several(result: Any) -> list[Tensor]:
    """What a function returned as a list of tensors. Raises RecordError for what is none."""
    found = list(result) if isinstance(result, (tuple, list)) else [result]
    for tensor in found:
        if not hasattr(tensor, "_recorded"):
            raise RecordError(
                "a branch or a loop's body returned what is no tensor",
                where=users_line(2) or None,
                expected="a tensor, or a tuple of them",
                got=type(tensor).__name__,
            )
    return found
