"""The recording of `ox.compile`: of a call that runs as it would without it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ox.autograd.accumulate_grad import owner
from ox.call_site import module_path, users_line
from ox.compiler.recording.control_flow import keep_branches
from ox.core.generator import Generator, default_generator
from ox.core.mode import MODE, MODULES
from ox.core.node import Node
from ox.core.operator import Operator
from ox.devices import cuda_state
from ox.errors import CompileError, OxError
from ox.graph.ir import Value
from ox.graph.record.recorded import Recorded
from ox.graph.record.recording import Recording, stale_view_error
from ox.nn.base.gradient_hooks import BackwardHookNode
from ox.tensors.tensor import Tensor

COMPUTED = object()  # in place of a gradient that the call made: nobody may hold it
NEW_STATE = "an optimizer creates its state"
LARGEST_COPY = 1 << 24  # bytes; what is larger and written and gone afterwards cannot be a constant


class External:
    """A tensor that the call did not make, by its memory."""

    def __init__(self, array: Any, value: Value, version: int, argument: int | None) -> None:
        self.array, self.value, self.version, self.argument = array, value, version, argument
        self.copy: Any = None  # what it held when it was first read
        self.tensors: list[Tensor] = []
        self.edges: list[Any] = []  # of each tensor, who made it and as which output
        self.grads: list[Any] = []  # its gradient, before this call reads it first

    def hold(self, tensor: Tensor) -> None:
        """Another tensor of this memory."""
        self.tensors.append(tensor)
        self.edges.append((tensor.node, tensor.port))
        self.grads.append(tensor._grad)


def has_hooks(node: Any) -> bool:
    """Whether a gradient that arrives at a node or leaf is handed to a hook."""
    return bool(node.hooks or getattr(node, "after", None))


class Reason:
    """Why a call stays eager: a sentence and the user's line."""

    def __init__(self, text: str, where: str = "", again: bool = False) -> None:
        self.text, self.where, self.again = text, where, again

    def __str__(self) -> str:
        return f"{self.text} ({self.where})" if self.where else self.text


class Capture(Recording):
    """Records a call. What cannot be recorded is a `reason`, and the call goes on.

    Args:
        fullgraph: raise CompileError in place of that.
        undo: keep what everything from outside held, for `Trace.restore`.
    """

    keeps_fused = True
    guarded = True

    def __init__(self, fullgraph: bool = False, undo: bool = False) -> None:
        super().__init__()
        self.undo = undo
        self.fullgraph = fullgraph
        self.reason: Reason | None = None
        self.externals: dict[int, External] = {}  # by array
        self.arguments: list[External] = []
        self.made: list[Any] = []  # weak references to what the call made
        self.controls: list[Any] = []  # weak references to the autograd nodes of branches and loops
        self.followed: list[tuple[bool, ...]] = []  # for each node the inputs that a gradient follows
        self.random: dict[int, tuple[Generator, Tensor, Tensor]] = {}  # with key and counter at the beginning
        self.grads: dict[int, tuple[Tensor, Any]] = {}  # of tensors, by id, before the code first set or removed them
        self.walked = False  # whether gradients are computed inside
        self.cleared: list[Tensor] = []  # those whose gradient is gone before anything is computed
        self.host_calls: list[Callable[[], Any]] = []
        self.settings: dict[tuple[int, tuple[str, ...]], tuple[Any, tuple[str, ...], tuple[Any, ...]]] = {}
        self.read_settings: dict[tuple[int, str], tuple[Any, str, Any]] = {}  # group, name and value
        self._in_host_call = False
        self.known: Container[int] = ()  # ids of tensors that are no constants
        self.watch: Any = None  # of the Python functions that are called
        self._changed: set[int] = set()  # arrays that host calls wrote
        self.read_values: list[tuple[Any, str, str]] = []  # arrays whose values Python code read, how and where
        self.written_inside: list[Any] = []  # arrays that branches and loops wrote, and may not have made

    @property
    def over(self) -> bool:  # type: ignore[override]
        return self.reason is not None and not self.undo  # what is undone must have been recorded

    @property
    def watched(self) -> bool:  # type: ignore[override]
        return self.watch is not None

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        watch, self.watch = self.watch, None
        if watch is None:
            yield
            return
        watch.pause()
        try:
            yield
        finally:
            self.watch = watch
            watch.go_on()

    # -- reasons -----------------------------------------------------------------------------------------------

    def refuse(self, error: OxError, again: bool = False) -> None:
        self.give_up(error.what, error.where, again, hint=error.hint)

    def give_up(self, text: str, where: str | None = None, again: bool = False, hint: str | None = None) -> None:
        """Note why the call cannot be recorded; the first reason counts, one for all calls before one for this call.
        Raises CompileError with `fullgraph`."""
        if self.reason is None or (self.reason.again and not again):
            self.reason = Reason(text, users_line() if where is None else where, again)
            if self.fullgraph and not again:
                raise CompileError(text, where=where or None, expected="one graph (fullgraph=True)", hint=hint)

    def on_custom_gradient(self) -> None:
        self.give_up("a gradient of one's own (a custom autograd.Function) cannot be recorded")

    def on_hook(self, node: Any) -> None:
        if isinstance(node, BackwardHookNode):
            self.on_hooked_module()
        self.give_up("a hook is set inside")

    def on_hooked_module(self) -> None:
        """The module that runs now has hooks."""
        self.give_up(f"{module_path(MODULES.get())} has hooks")

    def on_walk(self, nodes: Iterable[Any]) -> None:
        self.walked = True
        starts = [node for external in self.arguments for node, _ in external.edges if node is not None]
        # another call's argument has another history, and other hooks
        if not {node for node in starts if isinstance(node, Node)}.isdisjoint(nodes):
            self.give_up("a backward goes on into the history of an argument")
        if any(map(has_hooks, starts)):
            self.give_up("a gradient is computed inside, and an argument has hooks")

    def on_grad(self, tensor: Tensor) -> None:
        if id(tensor) not in self.grads:
            self.grads[id(tensor)] = tensor, COMPUTED if self.is_made(tensor._grad) else tensor._grad

    def on_random(self, generator: Any = None) -> None:
        generator = default_generator if generator is None else generator
        if id(generator) not in self.random:
            self.random[id(generator)] = generator, generator.key, generator.counter

    def on_control(self, node: Any) -> None:
        self.controls.append(weakref.ref(node))

    def on_copy(self, copy: Tensor) -> None:
        self.made.append(weakref.ref(copy))

    def on_new_state(self) -> None:
        self.give_up(NEW_STATE, again=True)

    def on_number(self, tensor: Tensor) -> None:
        if self._in_host_call:
            self._changed.add(id(tensor.array))
        else:
            self.give_up("a setting of an optimizer is changed inside")

    def on_setting(self, group: Any, names: Sequence[str]) -> None:
        if self._in_host_call:
            return
        if any(id(tensor.array) in self._changed for tensor in group.tensors.values()):
            self.give_up("a setting of an optimizer is read after a scheduler's step")
        for name in names:
            if name not in ("params", "param_names"):
                self.read_settings.setdefault((id(group), name), (group, name, dict.get(group, name)))

    def on_schedule(self, name: str) -> None:
        if not self._in_host_call:
            self.give_up(f"{name} of a scheduler is read, which changes outside of the graph")

    def on_host_call(self, call: Callable[[], Any]) -> Any:
        if self._in_host_call:
            return call()
        self.host_calls.append(call)
        self._in_host_call = True
        try:
            return call()
        finally:
            self._in_host_call = False

    def depends_on(self, owner: Any, names: Sequence[str]) -> None:
        values = tuple([getattr(owner, name) for name in names])
        self.settings.setdefault((id(owner), tuple(names)), (owner, tuple(names), values))

    # -- values ------------------------------------------------------------------------------------------------

    def argument(self, tensor: Tensor) -> Value:
        """Declare the next tensor among the arguments."""
        value = self.input(f"input_{len(self.arguments)}", tensor)
        external = External(tensor.array, value, tensor.version, len(self.arguments))
        external.hold(tensor)
        if self.undo:
            external.copy = cuda_state.copy(tensor.array)
        self.arguments.append(external)
        return value

    def value(self, tensor: Tensor) -> Value:
        recorded = tensor._recorded
        if recorded is None or recorded.recording is not self:
            if recorded is not None and recorded.recording.root() is self:
                self.give_up("a tensor that a branch or a loop's body made is used outside of it")
            return self._read(tensor)
        value: Value = recorded.value
        written = self._written.get(id(tensor.array))
        # a tensor that `.data` gave outside counts its own writes
        if recorded.version != tensor.version or (written is not None and written[1].value is not value):
            self.refuse(stale_view_error(tensor))
        return value

    def constant(self, tensor: Tensor, name: str | None = None) -> Value:
        return self._read(tensor)

    def _read(self, tensor: Tensor) -> Value:
        """What a tensor that was not made inside is now: the call may have written its memory through another one."""
        known = self.external(tensor, read=True)
        written = self._overwritten(tensor)
        if written is not None:
            return written
        if known.version != tensor.version:
            self.refuse(stale_view_error(tensor))
        return known.value

    def on_value(self, tensor: Tensor, what: str) -> None:
        if not self._in_host_call:
            self.read_values.append((tensor.array, what, users_line()))

    def on_write_inside(self, tensor: Tensor) -> None:
        self.written_inside.append(tensor.array)

    def constant_of(self, tensor: Tensor) -> Value | None:
        known = self.externals.get(id(tensor.array))
        return None if known is None else known.value

    def external(self, tensor: Tensor, read: bool) -> External:
        """A tensor that was not made inside; `read` before it is written."""
        array = tensor.array
        known = self.externals.get(id(array))
        if read and id(array) in self._changed:
            self.give_up("a scheduler's step comes before the optimizer's step")
        if known is None:
            value = self._name(Value("", array.dtype, array.shape, array.shape), "state")
            known = self.externals[id(array)] = External(array, value, tensor.version, None)
            unknown = type(tensor) is Tensor and array.nbytes <= LARGEST_COPY and id(tensor) not in self.known
            if read and (self.undo or unknown):  # perhaps it is a constant, which is written by now
                known.copy = cuda_state.copy(array)
        if not any(tensor is each for each in known.tensors):
            known.hold(tensor)
        return known

    def add(self, op: Operator, inputs: tuple[Any, ...], attributes: dict[str, Any], outputs: tuple[Any, ...]) -> None:
        if self.over:
            return
        if op.random and not op.domain:
            self.give_up(f"{op.name} draws random numbers that a recording does not have")
        if op.data_dependent_shape:
            self.give_up(f"the size of what {op.name} gives depends on values")
        if not self.graph.nodes:
            self.cleared = [tensor for tensor, _ in self.grads.values() if tensor._grad is None]
        super().add(op, inputs, attributes, outputs)
        grad = MODE.get().grad
        self.followed.append(tuple([grad and x is not None and x.node is not None for x in inputs]))
        self.made.extend(map(weakref.ref, outputs))

    def alias(self, new: Tensor, old: Tensor) -> None:
        value = self.value(old)
        own = new._recorded
        how = None
        if own is None or own.recording is not self:
            known: External | None = self.external(new, read=False)
            self._touched.append(new)
        else:
            how = own.view_call
            known = self.externals.get(id(new.array)) or next((e for e in self.arguments if e.array is new.array), None)
            if known is None and new._base is None and self._is_part_of_external(new.array):
                self.give_up("a view of a tensor that the call did not make is written through .data or .detach()")
            elif known is not None and not any(new is each for each in known.tensors):  # p.data, or p.detach()
                known.hold(new)
        new._recorded = Recorded(self, value, (False,) * new.array.ndim, new.version)
        new._recorded.view_call = how
        if known is not None:
            self._written[id(new.array)] = new.array, new._recorded

    def _is_part_of_external(self, array: Any) -> bool:
        memory = owner(array)
        return memory is not array and any(
            owner(e.array) is memory for e in (*self.arguments, *self.externals.values())
        )

    def set_value(self, tensor: Tensor, other: Tensor) -> None:
        super().set_value(tensor, other)
        self.made.append(weakref.ref(tensor))

    def on_custom_node(self, sources: Iterable[Tensor]) -> None:
        """Nodes of ox itself (views, checkpoints) are made of operators; a user's Function comes by
        `on_custom_gradient`."""

    # -- afterwards --------------------------------------------------------------------------------------------

    def is_made(self, tensor: Any) -> bool:
        """Whether the call computed this tensor, or wrote it."""
        recorded = getattr(tensor, "_recorded", None)
        return recorded is not None and recorded.recording is self

    def is_written(self, tensor: Any) -> bool:
        """Whether the call wrote this tensor from outside."""
        known = self.externals.get(id(tensor.array))
        return known is not None and self.current(known) is not known.value

    def current(self, external: External) -> Value:
        """The value that the memory holds at the end: that of the last write, through whichever tensor."""
        written = self._written.get(id(external.array))
        return external.value if written is None else written[1].value

    def is_on_host(self) -> bool:
        """Whether everything from outside lies in the memory of the CPU."""
        return all(isinstance(each.array, np.ndarray) for each in (*self.arguments, *self.externals.values()))

    def release(self) -> None:
        """Let go of the tensors of the recorded call."""
        self.arguments, self.externals, self.grads, self.random = [], {}, {}, {}
        self.cleared, self.read_values, self.written_inside = [], [], []

    def release_written(self) -> None:
        """Let go of the tensors that were written, so that those that nobody else holds are gone."""
        written = [weakref.ref(tensor) for tensor in self._touched]
        self._touched.clear()
        self._touched.extend(tensor for reference in written if (tensor := reference()) is not None)

    def forget(self) -> None:
        if keep_branches(self.controls, self._inside):
            self._inside = []
        super().forget()
        for reference in self.made:
            tensor = reference()
            if self.is_made(tensor):
                tensor._recorded = None
        self._touched, self.made, self.controls, self._constants = [], [], [], {}
