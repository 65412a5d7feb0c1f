"""Recording of a subgraph: the branch of an If, the body of a Loop or Scan, with the values it captures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from ox.core import operator
from ox.core.mode import MODE, switch_mode
from ox.core.node import Leaf, sequence
from ox.core.vjp import Tape
from ox.dtypes import is_floating
from ox.errors import RecordError
from ox.graph.ir import Graph, Key, Node, Value
from ox.graph.record.recorded import Recorded
from ox.graph.record.recording import Recording, stale_view_error

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

SMALL = 64  # elements; a constant of the code that large is made anew inside, not read from outside
Formal = tuple[str, Any, tuple[bool, ...], bool]


class Nested(Recording):
    """Collects a subgraph. A tensor of the recording around it, or a parameter, becomes a capture when it is read.

    Its `tape` is how the results came about, for a gradient: that is another subgraph, which resumes this one.
    """

    def __init__(self, outer: Recording) -> None:
        super().__init__()
        self.outer: Recording = outer
        self.captured: dict[Key, Tensor] = {}  # by the value outside and who made it: what a gradient is given to
        self.tape = Tape(self, spans=[(next(sequence), inf)])
        self._inner: dict[Key, Value] = {}
        self._resumed: dict[Value, Value] = {}  # what values of the recordings that this one continues are here
        self._continues: set[Recording] = set()

    def formal(self, name: str, array: Any, changing: tuple[bool, ...], followed: bool) -> Tensor:
        """A new input of the subgraph, with the value that it has in this run."""
        tensor = operator.make_tensor(array.copy())
        value = self._name(Value("", array.dtype, None, array.shape), name)
        tensor._recorded = Recorded(self, value, changing, tensor.version)
        self.graph.inputs.append(value)
        if followed and MODE.get().grad and is_floating(array.dtype):
            from ox.autograd.nested_grad import tracked_copy as behind_a_leaf

            with switch_mode(recording=None):
                tensor = behind_a_leaf(tensor)
        self.tape.formals.append(tensor)
        given = tensor.shallow_copy()  # another one, for the body may let it go its own way
        given.node = tensor.node
        return given

    def value(self, tensor: Tensor) -> Value:
        recorded = tensor._recorded
        if recorded is not None and recorded.recording in self._continues:
            return self._resumed_value(tensor)
        if recorded is not None and recorded.recording is not self and self.is_or_encloses(recorded.recording):
            return self._capture(tensor)
        if recorded is None or recorded.recording.root() is not self.root():
            outside = self.outer.constant_of(tensor)
            if self._from_outside(tensor) or (
                outside is not None and (tensor.array.size > SMALL or self._is_owned(outside))
            ):
                return self._capture(tensor)
        return super().value(tensor)

    def _from_outside(self, tensor: Tensor) -> bool:
        """Whether a gradient follows the tensor, and leaves this body with it."""
        if tensor.node is None:
            return False
        own = tensor._recorded is not None and tensor._recorded.recording in (self, *self._continues)
        return not own if isinstance(tensor.node, Leaf) else self.tape.is_outside(tensor.node)

    def _is_owned(self, value: Value) -> bool:
        recording: Recording | None = self.outer
        while recording is not None:
            if value in recording.graph.owned:
                return True
            recording = recording.outer
        return False

    def _capture(self, tensor: Tensor) -> Value:
        if tensor.node is not None and not self._from_outside(tensor):
            tensor = tensor.detach()  # handed on by a node of this body, which follows it
        outside = self.outer.value(tensor)
        key = outside, tensor.node, tensor.port
        if key not in self._inner:
            inner = Value("", outside.dtype, outside.dims, outside.shape)
            self.captured[key], self._inner[key] = tensor, self._name(inner, outside.name)
        return self._inner[key]

    def on_custom_node(self, sources: Iterable[Tensor]) -> None:
        for x in sources:
            if self._from_outside(x):
                self.value(x)

    def on_random(self, generator: Any = None) -> None:
        raise RecordError(
            "random numbers drawn inside a recorded branch or loop would be the same ones each time",
            hint="draw them before, x = ox.rand(...), and read x inside",
        )

    def on_hook(self, node: Any) -> None:
        leaf: Any = node.tensor() if isinstance(node, Leaf) else None
        if self.tape.is_outside(node) and (leaf is None or self._from_outside(leaf)):
            raise RecordError(
                "a hook is set inside a branch or a loop's body on a tensor from outside of it",
                hint="set it outside, or on a tensor that is made inside: x = x * 1",
            )

    def is_or_encloses(self, recording: Any) -> bool:
        return recording in self._continues or super().is_or_encloses(recording)

    def resume(self, tape: Tape, inputs: Sequence[Tensor]) -> None:
        """Write down here what a body did when its inputs are these, so that its tensors can be read, and a gradient
        go back through them."""
        then: Nested = tape.recording
        here: dict[Value, Value] = {}
        for formal, x in zip(tape.formals, inputs, strict=True):
            here[formal._recorded.value] = self.value(x)
        for key, x in then.captured.items():
            here[then._inner[key]] = self.value(x)
        for array, value, version in then._constants.values():
            here[value] = self._resumed_constant(array, value, version, then)
        for node in then.graph.nodes:
            for v in node.outputs:
                here[v] = self._name(replace(v), v.name)
            self.graph.nodes.append(
                replace(
                    node,
                    inputs=[None if v is None else here[v] for v in node.inputs],
                    outputs=[here[v] for v in node.outputs],
                    attributes={k: a.copy() if isinstance(a, Graph) else a for k, a in node.attributes.items()},
                )
            )
        self._resumed |= here | {v: here[w] for v, w in then._resumed.items()}
        self._continues |= {then, *then._continues}
        self.tape.resume(tape, inputs)

    def _resumed_constant(self, array: Any, value: Value, version: int, then: Recording) -> Value:
        known = self._constants.get(id(array))
        if known is None:
            known = self._constants[id(array)] = array, self._name(replace(value), value.name), version
            self.graph.constants[known[1]] = then.graph.constants[value]
        elif known[2] != version:
            raise stale_view_error(operator.make_tensor(array))
        return known[1]

    def _resumed_value(self, tensor: Tensor) -> Value:
        if tensor._recorded.version != tensor.version:
            raise stale_view_error(tensor)
        return self._resumed[tensor._recorded.value]

    def alias(self, new: Tensor, old: Tensor) -> None:
        recorded = new._recorded
        outside = recorded is not None and recorded.recording is not self and self.is_or_encloses(recorded.recording)
        if outside or (recorded is None and self.outer.constant_of(new) is not None):
            raise RecordError(
                "a branch or a loop's body writes in place to a tensor from outside of it",
                expected="functions without side effects",
                hint="return the new value from the function, and write it outside",
            )
        if recorded is not None and recorded.value in self.graph.inputs:
            raise RecordError(
                "a loop's body writes in place to a value that it is given",
                hint="the out-of-place form, or h = h.clone() before it",
            )
        if recorded is None:
            self.root().on_write_inside(new)
        super().alias(new, old)

    def forget(self) -> None:
        super().forget()
        self.tape.end()
        self.captured, self._inner, self._resumed, self._constants = {}, {}, {}, {}

    def close(self, outputs: Sequence[Tensor]) -> Graph:
        """Return the subgraph; each output has its own node."""
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
        self.tape.results = list(outputs)
        self.tape.spans[0] = self.tape.spans[0][0], next(sequence)
        graph.tape = self.tape
        return graph


def body(
    outer: Recording, function: Callable[..., Any], inputs: Sequence[Formal]
) -> tuple[Graph, list[Tensor], list[tuple[bool, ...]]]:
    """Run `function` once and return what ran as a subgraph of `outer`.

    Args:
        inputs: for each formal input a name, its array in this run, which of its sizes may change, and whether a
            gradient may follow it.

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
        with switch_mode(recording=nested):
            results = tensor_list(function(*given))
            if default_generator.counter is not counter:
                nested.on_random()
            graph = nested.close(results)
            changing = [nested.dynamic(y) for y in results]
    except BaseException:
        nested.forget()
        raise
    finally:
        default_generator.counter = counter
    outer._inside.append(nested)
    return graph, list(nested.captured.values()), changing


def tensor_list(result: Any) -> list[Tensor]:
    """What a function returned as a list of tensors. Raises RecordError for what is none."""
    found = list(result) if isinstance(result, (tuple, list)) else [result]
    for tensor in found:
        if not hasattr(tensor, "_recorded"):
            raise RecordError(
                "a branch or a loop's body returned what is no tensor",
                expected="a tensor, or a tuple of them",
                got=type(tensor).__name__,
            )
    return found
