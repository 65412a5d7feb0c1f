"""Writing down what runs: every operator call inside a recording becomes a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ox.errors import RecordError
from ox.graph.form import Graph, Node, Value
from ox.ops.dim import Dim
from ox.ops.mode import MODE, switched
from ox.ops.operator import OPS, Operator
from ox.where import module_path, users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor

Dims = Sequence[int | str]


class Recorded:
    """What a tensor is in a recording: its value, and which of its sizes may differ from run to run."""

    __slots__ = ("changing", "dims", "recording", "value")

    def __init__(self, recording: Recording, value: Value, changing: tuple[bool, ...]) -> None:
        self.recording, self.value, self.changing = recording, value, changing
        self.dims: tuple[int, ...] | None = None

    def active(self) -> bool:
        return MODE.get().recording is self.recording

    def shape_of(self, tensor: Tensor) -> tuple[int, ...]:
        """The tensor's shape, with an `ox.Dim` for every size that may change; plain ints once recording is over."""
        plain: tuple[int, ...] = tensor.data.shape
        if not any(self.changing) or not self.active():
            return plain
        if self.dims is None:
            self.dims = tuple(
                Dim(size, _size_of(tensor, axis)) if self.changing[axis] else size for axis, size in enumerate(plain)
            )
        return self.dims


def _size_of(tensor: Tensor, axis: int) -> Callable[[], Tensor]:
    return lambda: OPS["Shape"](tensor, start=axis, end=axis + 1)


class Recording:
    """Collects a graph while it is the active recording of a context. The choke point tells it every call."""

    def __init__(self) -> None:
        self.graph = Graph()
        self._constants: dict[int, tuple[Tensor, Value]] = {}  # the tensor is kept, so its id stays its own
        self._written: list[Tensor] = []
        self._names: set[str] = set()

    def _fresh(self, stem: str) -> str:
        name, k = stem, 1
        while name in self._names:
            name, k = f"{stem}_{k}", k + 1
        self._names.add(name)
        return name

    def input(self, name: str, tensor: Tensor, dims: Dims | None = None) -> Value:
        """Declare a graph input; a string in `dims` names a size that may change."""
        shape = tensor.data.shape
        dims = shape if dims is None else tuple(dims)
        if len(dims) != len(shape):
            raise RecordError(
                f"input '{name}' has {len(shape)} dimensions",
                expected=f"as many names or sizes as that, got {list(dims)}",
            )
        value = Value(self._fresh(name), tensor.data.dtype, tuple(dims), shape)
        tensor._recorded = Recorded(self, value, tuple(isinstance(d, str) for d in dims))
        self._written.append(tensor)
        self.graph.inputs.append(value)
        return value

    def constant(self, tensor: Tensor, name: str | None = None) -> Value:
        """The value of a tensor that was not computed inside: a parameter, or a constant of the code."""
        known = self._constants.get(id(tensor))
        if known is not None:
            return known[1]
        array = tensor.data
        value = Value(self._fresh(name or "constant"), array.dtype, array.shape, array.shape)
        self._constants[id(tensor)] = (tensor, value)
        from ox.devices import cpu

        self.graph.constants[value] = cpu(array).copy()  # a step may overwrite the memory
        return value

    def value(self, tensor: Tensor) -> Value:
        recorded = tensor._recorded
        if recorded is not None and recorded.recording is self:
            return recorded.value  # type: ignore[no-any-return]
        return self.constant(tensor)

    def add(self, op: Operator, inputs: tuple[Any, ...], attributes: dict[str, Any], outputs: tuple[Any, ...]) -> None:
        values = [None if x is None else self.value(x) for x in inputs]
        while values and values[-1] is None:
            values.pop()
        changes = any(
            x is not None and x._recorded is not None and x._recorded.recording is self and _ever_changes(x._recorded)
            for x in inputs
        )
        made = []
        for y in outputs:
            shape = y.data.shape
            value = Value(self._fresh(op.name.lower()), y.data.dtype, None, shape)
            y._recorded = Recorded(self, value, (changes,) * len(shape) if shape or not changes else _SCALAR)
            made.append(value)
        self.graph.nodes.append(
            Node(
                op.name,
                op.domain,
                values,
                made,
                {**op.schema.attributes, **attributes},
                where=users_line(3),
                module=module_path(MODE.get().modules),
            )  # fmt: skip
        )

    def alias(self, new: Tensor, old: Tensor) -> None:
        """`new` was written in place and is now what `old` is."""
        recorded = old._recorded
        if recorded is None or recorded.recording is not self:
            recorded = Recorded(self, self.constant(old), (False,) * old.data.ndim)
        new._recorded = recorded
        self._written.append(new)

    def finish(self, outputs: Mapping[str, Tensor]) -> Graph:
        """Name the outputs, forget the tensors, and hand over the graph."""
        for name, tensor in outputs.items():
            value = self.value(tensor)
            if value in self.graph.outputs or value in self.graph.inputs or value in self.graph.constants:
                # a graph output must be made by a node of its own
                copy = Value(self._fresh(name), value.dtype, value.dims, value.shape)
                self.graph.nodes.append(Node("Identity", "", [value], [copy]))
                value = copy
            else:
                value.name = self._fresh(name)
            self.graph.outputs.append(value)
        for tensor in self._written:
            tensor._recorded = None
        return self.graph


# a changing tensor of no dimensions has no size to mark, yet what is computed from it changes
_SCALAR: tuple[bool, ...] = (True,)


def _ever_changes(recorded: Recorded) -> bool:
    return any(recorded.changing)


def record(
    function: Callable[..., Any],
    inputs: Mapping[str, Tensor],
    *,
    dims: Mapping[str, Dims] | None = None,
    constants: Mapping[str, Tensor] | None = None,
    outputs: Sequence[str] | None = None,
    restore: Iterable[Tensor] = (),
) -> Graph:
    """Run `function(*inputs)` once and return what ran as a graph.

    Args:
        inputs: graph inputs by name, in the order in which `function` takes them.
        dims: for an input, one int or name a dimension; named sizes may change from run to run. Default: all fixed.
        constants: names for tensors that the function uses without being given them (parameters, buffers).
        outputs: names for what the function returns; default ``output`` or ``output_0``, ..., or a dict's keys.
        restore: tensors whose values, gradients and versions are put back after the run, as it may write them.

    Raises:
        RecordError: a branch on data, or a result that is no tensor.
    """
    from ox import random

    recording = Recording()
    kept = [(t, t.data.copy(), t.data, t.grad) for t in restore]
    state = random.get_state()
    try:
        for name, tensor in inputs.items():
            recording.input(name, tensor, (dims or {}).get(name))
        for name, tensor in (constants or {}).items():
            recording.constant(tensor, name)
        with switched(recording=recording):
            results = named_outputs(function(*inputs.values()), outputs)
            return recording.finish(results)
    finally:
        random.set_state(state)
        for tensor, array, memory, grad in kept:
            memory[...] = array
            tensor.data, tensor.grad = memory, grad


def named_outputs(result: Any, names: Sequence[str] | None) -> dict[str, Tensor]:
    """What a function returned, by name. Raises RecordError for what is no tensor."""
    if isinstance(result, Mapping):
        named = dict(result)
    else:
        several = list(result) if isinstance(result, (tuple, list)) else [result]
        names = names or (["output"] if len(several) == 1 else [f"output_{i}" for i in range(len(several))])
        if len(names) != len(several):
            raise RecordError("other names than results", expected=f"{len(several)} names", got=str(list(names)))
        named = dict(zip(names, several, strict=True))
    for name, tensor in named.items():
        if not hasattr(tensor, "_recorded"):
            raise RecordError(
                f"result '{name}' is no tensor", got=type(tensor).__name__, expected="tensors, or a dict of them"
            )
    return named
