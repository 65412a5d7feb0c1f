"""The state of the current context (thread or task): gradients, autocast, a recording, a forced executor, a watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from ox.devices import executors


class Recorder(Protocol):
    """What `Operator.__call__` reports to: every call, every in-place write, and which tensors are the same value."""

    keeps_fused: bool  # a fused Function stays one node; otherwise the recording has its body's operators
    guarded: bool  # it is only used while Python code would decide as it did; otherwise it must hold for all inputs

    over: bool  # nothing is recorded any more: the code that runs can be that of eager calls
    watched: bool  # a profiler of Python looks at every function that is called

    def unwatched(self) -> AbstractContextManager[None]: ...

    def add(self, op: Any, inputs: tuple[Any, ...], attributes: dict[str, Any], outputs: tuple[Any, ...]) -> None: ...

    def alias(self, new: Any, old: Any) -> None: ...

    def on_custom_gradient(self) -> None: ...

    def copy_call_site(self, node: Any, since: int) -> None: ...

    def count(self) -> int: ...

    def value(self, tensor: Any) -> Any: ...

    def dynamic(self, tensor: Any) -> tuple[bool, ...]: ...

    def mark_dynamic(self, tensor: Any) -> None: ...

    def body(self, function: Callable[..., Any], inputs: Any = ()) -> tuple[Any, list[Any], list[Any]]: ...

    def resume(self, tape: Any, inputs: Any) -> None: ...

    def set_value(self, tensor: Any, other: Any) -> None: ...

    def on_size_test(self, test: Any, number: Any = None) -> None: ...

    def on_hook(self, node: Any) -> None: ...

    def on_random(self, generator: Any) -> None: ...

    def on_grad(self, tensor: Any) -> None: ...

    def on_copy(self, copy: Any) -> None: ...

    def on_control(self, node: Any) -> None: ...

    def on_walk(self, nodes: Any) -> None: ...

    def on_new_state(self) -> None: ...

    def on_number(self, tensor: Any) -> None: ...

    def on_value(self, tensor: Any, what: str) -> None: ...

    def on_setting(self, group: Any, names: Sequence[str]) -> None: ...

    def on_schedule(self, name: str) -> None: ...

    def on_host_call(self, call: Callable[[], Any]) -> Any: ...

    def depends_on(self, owner: Any, names: Sequence[str]) -> None: ...

    def refuse(self, error: Any, again: bool = False) -> None: ...

    def on_custom_node(self, sources: Any) -> None: ...


class NodeObserver(Protocol):
    """Is called for every new autograd node: for anomaly detection, saved-tensor hooks and the profiler."""

    @property
    def passive(self) -> bool:
        """Whether it changes nothing, neither what is saved nor what is checked."""
        ...

    def on_node(self, node: Any) -> None: ...

    def gradients(self, node: Any, cotangents: list[Any], differentiable: bool) -> list[Any]: ...


class Watch(Protocol):
    """Runs an executor for a call, and takes its time or its memory: for the profiler and `track_memory`.

    `origin` has the `module` and the line (`where`) of a call that an engine makes; None is the code that runs now.
    """

    def __call__(
        self,
        run: Callable[..., Any],
        op: Any,
        arrays: list[Any],
        attributes: dict[str, Any],
        accelerated: Any,
        origin: Any = None,
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class Mode:
    """The switches. Immutable: a context manager puts a changed copy in place and the old one back."""

    grad: bool = True
    inference: bool = False
    recording: Recorder | None = None
    executor: Callable[..., Any] | None = None  # forced for every operator; None picks by device, dtype and size
    observer: NodeObserver | None = None
    autocast: Any = None  # an ox.amp.autocasting.Active, which gives a call its inputs in other types
    watch: Watch | None = None  # runs each call's executor and looks at it, without any effect on what runs
    parts: Any = None  # an ox.compiler.submodules.Parts, which runs modules compiled inside a call that stays eager


MODE: ContextVar[Mode] = ContextVar("ox_mode", default=Mode())  # noqa: B039 (frozen)
# The nn.Modules whose forward is running, outermost first. Not in Mode, of which each call would make another one.
MODULES: ContextVar[tuple[Any, ...]] = ContextVar("ox_modules", default=())


# What packages on higher floors switch on while a call is recorded: ox.optim notes reads of a scheduler's numbers.
while_recording: list[Callable[[], AbstractContextManager[None]]] = []


def cannot_record(error: Any, again: bool = False) -> None:
    """Under a recording: raise `error` (a RecordError). A recording of `ox.compile` notes it, and the call goes on;
    with `again` the next call is recorded."""
    recording = MODE.get().recording
    if recording is None:
        raise error
    recording.refuse(error, again)


def values_are_checked() -> bool:
    """Whether a call may raise an error for the numbers in its tensors: not in a recording for a file, which must hold
    for all of them. A call that `ox.compile` records is checked as the eager one that it is."""
    recording = MODE.get().recording
    return recording is None or recording.guarded


def with_changes(mode: Mode, changes: dict[str, Any]) -> Mode:
    """A copy with some switches changed; a third of the time of `dataclasses.replace`."""
    get = changes.get
    made = Mode(
        get("grad", mode.grad),
        get("inference", mode.inference),
        get("recording", mode.recording),
        get("executor", mode.executor),
        get("observer", mode.observer),
        get("autocast", mode.autocast),
        get("watch", mode.watch),
        get("parts", mode.parts),
    )
    return made if changes.keys() <= _FIELDS else replace(made, **changes)  # which names the switch that is none


_FIELDS = frozenset(field.name for field in fields(Mode))


class switch_mode:
    """``with switch_mode(grad=False):`` runs a block with some switches changed. Others that a statement inside
    changes, as `set_grad_enabled` does, stay changed after the block."""

    __slots__ = ("_changes", "_mode", "_token")

    def __init__(self, **changes: Any) -> None:
        self._changes = changes

    def __enter__(self) -> Mode:
        self._mode = mode = with_changes(MODE.get(), self._changes)
        self._token = MODE.set(mode)
        return mode

    def __exit__(self, *_: object) -> None:
        now = MODE.get()
        MODE.reset(self._token)
        if now is not self._mode:
            before = MODE.get()
            MODE.set(with_changes(now, {name: getattr(before, name) for name in self._changes}))


executors._switches[:] = [switch_mode]
