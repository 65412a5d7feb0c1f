"""Recording: every operator call becomes a node of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from ox.call_site import module_path, users_line
from ox.core.copy_on_write import CopyOnWrite
from ox.core.generator import default_generator
from ox.core.mode import MODULES, switch_mode
from ox.core.operator import Operator
from ox.core.size_expression import Expression
from ox.errors import RecordError
from ox.graph.ir import Graph, Node, Value
from ox.graph.record.outputs import beside, named_outputs
from ox.graph.record.recorded import Recorded, SizeTest
from ox.graph.record.restore import restored

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

Dims = Sequence[int | str]


class Recording:
    """Collects a graph while it is the active recording of a context. `Operator.__call__` reports every call to it."""

    outer: Recording | None = None  # the one that it is inside of; ox.graph.record.nested
    keeps_fused = False  # a fused Function stays one node, for an engine that has its kernel
    over = False  # nothing is recorded any more
    watched = False  # a profiler of Python looks at every function that is called
    draws = ""  # the first line of the user's code that draws from the generator of `ox.manual_seed`
    guarded = False  # it must hold for all inputs, so that Python code must not decide by what may differ

    def __init__(self) -> None:
        self.graph = Graph()
        self.size_tests: list[SizeTest] = []
        self._constants: dict[int, tuple[Any, Value, int]] = {}  # by array, which is kept, so its id stays its own
        self._touched: list[Tensor] = []
        self._written: dict[int, tuple[Any, Recorded]] = {}  # by array, which is kept: what memory from outside is now
        self._names: dict[str, Value] = {}
        self._numbers: dict[str, int] = {}  # of the last name that was made of another one
        self._inside: list[Recording] = []  # recordings of branches and bodies
        self._lender: CopyOnWrite | None = None

    def _name(self, value: Value, wanted: str) -> Value:
        """Give `value` a name that is free: the wanted one, or with a number behind it."""
        name, k = wanted, self._numbers.get(wanted, 0)
        while name in self._names:
            k += 1
            name = f"{wanted}_{k}"
        self._numbers[wanted] = k
        self._names[name] = value
        value.name = name
        return value

    def _claim(self, value: Value, name: str) -> None:
        """Give `value` this very name; a value of a node that has it gets another."""
        before = self._names.pop(name, None)
        if before in self.graph.inputs or before in self.graph.owned or before in self.graph.outputs:
            raise RecordError(
                f"two inputs, outputs or parameters would be called '{name}'", hint="other input_names or output_names"
            )
        if before is not None and before is not value:
            self._name(before, f"{name}_1")
        self._names.pop(value.name, None)
        self._names[name] = value
        value.name = name

    def input(self, name: str, tensor: Tensor, dims: Dims | None = None) -> Value:
        """Declare a graph input; a string in `dims` names a size that may change."""
        shape = tensor.static_shape
        dims = shape if dims is None else tuple(dims)
        if len(dims) != len(shape):
            raise RecordError(
                f"input '{name}' has {len(shape)} dimensions",
                expected=f"as many names or sizes as that, got {list(dims)}",
            )
        value = Value("", tensor.array.dtype, tuple(dims), shape)
        self._claim(value, name)
        tensor._recorded = Recorded(self, value, tuple(isinstance(d, str) for d in dims), tensor.version)
        self._touched.append(tensor)
        self.graph.inputs.append(value)
        return value

    def constant(self, tensor: Tensor, name: str | None = None) -> Value:
        """The value of a tensor that was not computed inside: a parameter when named, or a constant of the code."""
        array = tensor.array
        known = self._constants.get(id(array))
        if known is not None:
            if known[2] != tensor.version:
                raise stale_view_error(tensor)
            return known[1]
        value = Value("", array.dtype, array.shape, array.shape)
        if name is None:
            self._name(value, "constant")
        else:
            self._claim(value, name)
            self.graph.owned.add(value)
        self._constants[id(array)] = (array, value, tensor.version)
        self.graph.constants[value] = array if self._lender is not None and self._lender.lends(array) else _copy(array)
        return value

    def borrow_from(self, lender: CopyOnWrite) -> None:
        """Arrays that `lender` lends are constants of the graph without a copy, until somebody writes them."""

        graph = self.graph  # and not the recording, whose views of weights would live on

        def take_copy(array: Any, copy: Any) -> None:
            for value, known in graph.constants.items():
                if known is array:
                    graph.constants[value] = copy

        self._lender = lender
        lender.readers.append(take_copy)

    def value(self, tensor: Tensor) -> Value:
        """What the tensor is in this graph: a value that it has, or a constant from now on."""
        recorded = tensor._recorded
        if recorded is not None and recorded.recording is self:
            if recorded.version != tensor.version:
                raise stale_view_error(tensor)
            return recorded.value
        if recorded is not None and recorded.recording.root() is self.root():
            raise RecordError(
                "a tensor that a branch or a loop's body made is used outside of it",
                hint="return it from the function that was given to ox.cond, ox.while_loop or ox.scan",
            )
        written = self._overwritten(tensor)
        return self.constant(tensor) if written is None else written

    def _overwritten(self, tensor: Tensor) -> Value | None:
        """What a tensor from outside is now, if its memory was written through another tensor: `.data` or `detach`."""
        written = self._written.get(id(tensor.array))
        if written is None:
            return None
        if written[1].version != tensor.version:
            self.refuse(stale_view_error(tensor))
        return written[1].value

    def is_or_encloses(self, recording: Any) -> bool:
        """Whether a recording is this one or one that this one is inside of: its tensors can be read here."""
        return recording is self or (self.outer is not None and self.outer.is_or_encloses(recording))

    def root(self) -> Recording:
        """The outermost one around this one."""
        return self if self.outer is None else self.outer.root()

    def constant_of(self, tensor: Tensor) -> Value | None:
        """The constant that the tensor's memory already is, here or further out."""
        known = self._constants.get(id(tensor.array))
        if known is not None:
            return known[1]
        return None if self.outer is None else self.outer.constant_of(tensor)

    def body(
        self, function: Callable[..., Any], inputs: Sequence[tuple[str, Any, tuple[bool, ...], bool]] = ()
    ) -> tuple[Graph, list[Tensor], list[tuple[bool, ...]]]:
        """Record `function` as a subgraph; see `ox.graph.record.nested.body`."""
        from ox.graph.record.nested import body

        return body(self, function, inputs)

    def resume(self, tape: Any, inputs: Sequence[Tensor]) -> None:
        """Copy the nodes of another body into this one, so that its tensors can be read; only `Nested` supports it."""
        raise RecordError("only inside a branch or a loop can what another one did be read")

    def on_write_inside(self, tensor: Tensor) -> None:
        """A branch or a loop's body writes a tensor in place that it may not have made."""

    def set_value(self, tensor: Tensor, other: Tensor) -> None:
        """`tensor` now has the value of `other`, of any size."""
        value = self.value(other)
        tensor._recorded = Recorded(self, value, (True,) * tensor.array.ndim or _SCALAR, tensor.version)

    def dynamic(self, tensor: Tensor) -> tuple[bool, ...]:
        """Which sizes of a tensor may change from run to run."""
        recorded = tensor._recorded
        known = recorded is not None and self.is_or_encloses(recorded.recording)
        return recorded.dynamic if known else (False,) * tensor.array.ndim

    def mark_dynamic(self, tensor: Tensor) -> None:
        """Every size of this recorded tensor may change from run to run."""
        tensor._recorded.dynamic = (True,) * tensor.array.ndim or _SCALAR

    def add(self, op: Operator, inputs: tuple[Any, ...], attributes: dict[str, Any], outputs: tuple[Any, ...]) -> None:
        values = [None if x is None else self.value(x) for x in inputs]
        while values and values[-1] is None:
            values.pop()
        changes = any(
            x is not None
            and x._recorded is not None
            and (op.data_dependent_shape or any(x._recorded.dynamic))
            and self.is_or_encloses(x._recorded.recording)
            for x in inputs
        )
        made = []
        for port, y in enumerate(outputs):
            shape = y.static_shape
            value = self._name(Value("", y.array.dtype, None, shape), op.name.lower())
            changing = (changes,) * len(shape) if shape or not changes else _SCALAR
            y._recorded = Recorded(self, value, changing, y.version)
            if y._base is not None:
                y._recorded.view_call = op, inputs, attributes, len(outputs), port
            made.append(value)
        self.graph.nodes.append(
            Node(
                op.name,
                op.domain,
                values,
                made,
                {**op.schema.attributes, **attributes},
                where=users_line(),
                module=module_path(MODULES.get()),
            )
        )

    def count(self) -> int:
        """How many nodes there are so far."""
        return len(self.graph.nodes)

    def copy_call_site(self, node: Node, since: int) -> None:
        """The nodes from number `since` on are a replay of this one, whose author they keep."""
        for made in self.graph.nodes[since:]:
            made.where, made.module = node.where, node.module

    def unwatched(self) -> AbstractContextManager[None]:
        """While code of ox itself runs, in which no code of a user does: a profiler of Python stands still."""
        return nullcontext()

    def on_size_test(self, test: Expression, number: Expression = None) -> None:
        """Python code has compared sizes, or ox has for it; or it has made a plain number of a size."""
        self.root().size_tests.append(SizeTest(test, users_line(), number))

    def on_custom_gradient(self) -> None:
        """A gradient was declared that is not that of the operators; a graph holds operators only."""

    def on_hook(self, node: Any) -> None:
        """A hook is set on a node or leaf."""
        self.on_custom_gradient()

    def on_grad(self, tensor: Tensor) -> None:
        """The gradient of a tensor is about to be set or removed."""

    def on_random(self, generator: Any) -> None:
        """A generator is about to draw random numbers."""
        if generator is default_generator:  # another one is made anew in each call, or seen to go on
            self.draws = self.draws or users_line() or "unknown"

    def on_walk(self, nodes: Iterable[Any]) -> None:
        """A backward is about to pass these nodes; on for those who must know."""

    def on_copy(self, copy: Tensor) -> None:
        """`copy` is another tensor of the same value: `detach`, or what an operator saves for backward."""

    def on_control(self, node: Any) -> None:
        """A branch or a loop has a history: this node."""

    def on_new_state(self) -> None:
        """An optimizer is about to create the state of a parameter."""

    def on_number(self, tensor: Tensor) -> None:
        """Python code sets a number that a recorded update reads as a tensor."""

    def on_value(self, tensor: Tensor, what: str) -> None:
        """Python code reads the value of a tensor that no operator of this recording made."""
        if self.outer is not None:
            self.outer.on_value(tensor, what)

    def on_setting(self, group: Any, names: Sequence[str]) -> None:
        """Python code reads these settings of a parameter group of an optimizer."""

    def on_schedule(self, name: str) -> None:
        """Python code reads this attribute of a scheduler, whose steps are no part of the graph."""

    def on_host_call(self, call: Callable[[], Any]) -> Any:
        """Run Python code that is no part of the graph, and what it returns: the step of a scheduler."""
        return call()

    def depends_on(self, owner: Any, names: Sequence[str]) -> None:
        """What is recorded depends on these attributes of an object, or entries of a dict."""

    def refuse(self, error: RecordError, again: bool = False) -> None:
        """Something cannot be recorded; with `again` another call can."""
        raise error

    def on_custom_node(self, sources: Iterable[Tensor]) -> None:
        """A node that no operator made follows these tensors."""

    def alias(self, new: Tensor, old: Tensor) -> None:
        """`new` was written in place and is now what `old` is."""
        recorded = old._recorded
        if recorded is None or recorded.recording is not self:
            recorded = Recorded(self, self.constant(old), (False,) * old.array.ndim, 0)
        outside = new._recorded is None or new._recorded.recording is not self
        how = None if outside else new._recorded.view_call
        new._recorded = Recorded(self, recorded.value, recorded.dynamic, new.version)
        new._recorded.view_call = how
        if outside or id(new.array) in self._written:
            self._written[id(new.array)] = new.array, new._recorded
        self._touched.append(new)

    def finish(self, outputs: Mapping[str, Tensor]) -> Graph:
        """Name the outputs and hand over the graph."""
        for name, tensor in outputs.items():
            value = self.value(tensor)
            if value.name == name and value not in self.graph.outputs:
                self.graph.outputs.append(value)
                continue
            if value in self.graph.outputs or value in self.graph.inputs or value in self.graph.constants:
                # a graph output must have its own node
                copy = Value("", value.dtype, value.dims, value.shape)
                self.graph.nodes.append(Node("Identity", "", [value], [copy]))
                value = copy
            self._claim(value, name)
            self.graph.outputs.append(value)
        return self.graph

    def forget(self) -> None:
        """Let tensors that outlive the recording be ordinary tensors again."""
        for inside in self._inside:
            inside.forget()
        for tensor in self._touched:
            if tensor._recorded is not None and tensor._recorded.recording is self:
                tensor._recorded = None
        self._written = {}


def stale_view_error(tensor: Tensor) -> RecordError:
    return RecordError(
        "a view is read after its memory was written in place, which a graph cannot follow",
        got=f"written by {tensor.last_write()}",
        hint="the out-of-place form of that write, or .clone() before it",
    )


def _copy(array: Any) -> Any:
    """In memory of the CPU that nobody else has: a step may overwrite the tensor's."""
    from ox.devices import cpu

    return array.copy() if isinstance(array, ndarray) else cpu(array)


# a changing tensor of no dimensions has no size to mark, yet what is computed from it changes
_SCALAR: tuple[bool, ...] = (True,)


def record(
    function: Callable[..., Any],
    inputs: Mapping[str, Tensor],
    *,
    dims: Mapping[str, Dims] | None = None,
    constants: Mapping[str, Tensor] | None = None,
    outputs: Sequence[str] | None = None,
    restore: Iterable[Tensor] = (),
    recording: Recording | None = None,
    lender: CopyOnWrite | None = None,
) -> Graph:
    """Run `function(*inputs)` once and return what ran as a graph.

    Args:
        inputs: graph inputs by name, in the order in which `function` takes them.
        dims: for an input, one int or name a dimension; named sizes may change from run to run. Default: all fixed.
        constants: names for tensors that the function uses without being given them (parameters, buffers).
        outputs: names for what the function returns; default ``output`` or ``output_0``, ..., or a dict's keys.
        restore: tensors whose values, versions and gradients are put back after the run, as it may write them.
        recording: where to record; its `graph` then holds what ran until an error.
        lender: has the arrays that the graph need not copy; it may read them until the lender's context ends.

    Raises:
        RecordError: a branch on data, or a result that is no tensor.
    """
    from ox import random

    recording = recording or Recording()
    if lender is not None:
        recording.borrow_from(lender)
    state = random.get_state()
    with restored(restore, lender):
        try:
            for name, tensor in inputs.items():
                recording.input(name, tensor, (dims or {}).get(name))
            for name, tensor in (constants or {}).items():
                recording.constant(tensor, name)
            with switch_mode(recording=recording):
                results = named_outputs(function(*inputs.values()), outputs)
                return recording.finish(results if outputs else beside(results, {*inputs, *(constants or {})}))
        finally:
            recording.forget()
            random.set_state(state)
