"""Collecting events: a watch that times each kernel, and an observer that records its gradient node.

Both are switches of `ox.core.mode`, so that nothing of this costs anything while no profiler is on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from time import perf_counter_ns
from typing import Any

from ox import devices
from ox.autograd.saved_tensor_hooks import SavedTensorObserver
from ox.call_site import module_path, users_line
from ox.core.mode import MODULES, Watch
from ox.devices import cuda_state
from ox.profiler.event import BACKWARD, FLIGHT, FLIGHT_LANE, OPERATOR, RANGE, Event
from ox.profiler.flops import flops
from ox.tensors.memory_stats import owner

COLLECTOR: ContextVar[Collector | None] = ContextVar("ox_profiler", default=None)


@dataclass
class Collector:
    """The events of one recording, in the order of their ends."""

    options: frozenset[str]  # of shapes, memory, stack, modules, flops, cuda
    began: int = field(default_factory=perf_counter_ns)
    events: list[Event] = field(default_factory=list)
    stack: list[Event] = field(default_factory=list)
    paths: dict[int, str] = field(default_factory=dict)  # of the forward of a node, by its sequence number
    names: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def now(self) -> float:
        return (perf_counter_ns() - self.began) / 1000

    def open(self, name: str, kind: str) -> Event:
        above = self.stack[-1] if self.stack else None
        event = Event(name, kind, self.now(), thread=threading.get_ident())
        event.backward = kind == BACKWARD or (above is not None and above.backward)
        self.stack.append(event)
        return event

    def close(self, event: Event) -> None:
        event.end = self.now()
        while self.stack and self.stack.pop() is not event:
            pass  # spans that an exception left open
        if self.stack:
            above = self.stack[-1]
            above.inner += event.cpu_time_total
            above.memory += event.memory
            above.inner_memory += event.memory
        self.events.append(event)

    def watch(self, before: Watch | None) -> Watch:
        """Runs a call as it would run without a profiler, and takes its time; `before` is the watch that was there."""
        options = self.options
        shapes, memory, lines, modules, wait = (n in options for n in ("shapes", "memory", "stack", "modules", "cuda"))

        def watched(
            run: Callable[..., Any],
            op: Any,
            arrays: list[Any],
            attributes: dict[str, Any],
            accelerated: Any,
            origin: Any = None,
        ) -> Any:
            event = self.open(op.name, OPERATOR)
            try:
                if before is None:
                    result = run(op, arrays, attributes, accelerated)
                else:
                    result = before(run, op, arrays, attributes, accelerated, origin)
                if wait and cuda_state.in_use:
                    devices.cuda.synchronize()
            finally:
                self.close(event)
            if shapes:
                event.shapes = tuple(() if a is None else tuple(a.shape) for a in arrays)
            if memory and not (origin is not None and origin.planned):
                self.count(event, fresh(arrays, result))
            if "flops" in options:
                event.flops = flops(op, arrays, result)
            if lines:
                event.line = users_line() if origin is None else origin.where
            if modules and origin is not None:
                event.module = origin.module.partition(" ")[0]
            elif modules:
                event.module = self.stack[-1].module if event.backward and self.stack else self.path(MODULES.get())
            return result

        return watched

    def count(self, event: Event, amount: int) -> None:
        event.memory = amount
        for above in self.stack:
            above.memory += amount
            above.inner_memory += amount

    def path(self, running: tuple[Any, ...]) -> str:
        """``LeNet.head.fc1`` for the modules that are running."""
        found = self.names.get(running)
        if found is None:
            found = self.names[running] = module_path(running).partition(" ")[0]
        return found


def fresh(arrays: list[Any], result: Any) -> int:
    """Bytes of the outputs that are no views of an input."""
    held = {id(owner(a)) for a in arrays if a is not None}
    several = result if isinstance(result, tuple) else (result,)
    return sum(int(a.nbytes) for a in several if hasattr(a, "nbytes") and id(owner(a)) not in held)


@dataclass(frozen=True)
class NodeCollector(SavedTensorObserver):
    """The watch that was there, and the profiler beside it."""

    collector: Any = None

    def on_node(self, node: Any) -> None:
        super().on_node(node)
        if "modules" in self.collector.options:
            self.collector.paths[node.sequence] = self.collector.path(MODULES.get())

    def gradients(self, node: Any, cotangents: list[Any], differentiable: bool) -> list[Any]:
        collector: Collector = self.collector
        event = collector.open(node.name(), BACKWARD)
        event.module = collector.paths.get(node.sequence, "")
        try:
            return super().gradients(node, cotangents, differentiable)
        finally:
            collector.close(event)


@contextmanager
def _range(name: str) -> Iterator[None]:
    collector = COLLECTOR.get()
    if collector is None:
        yield
        return
    event = collector.open(name, RANGE)
    if "modules" in collector.options:
        event.module = collector.path(MODULES.get())
    try:
        yield
    finally:
        collector.close(event)


def in_flight(name: str, backward: bool = False) -> Callable[[], None]:
    """A span that begins now and lasts until what is returned is called, beside all others: of something that is on
    its way, while this thread does other things. Its own time counts as none."""
    collector = COLLECTOR.get()
    if collector is None:
        return _nothing
    event = Event(name, FLIGHT, collector.now(), thread=FLIGHT_LANE)
    event.backward = backward

    def landed() -> None:
        event.end = collector.now()
        event.inner = event.end - event.start
        collector.events.append(event)

    return landed


def _nothing() -> None:
    pass


class record_function:
    """``with record_function("data"): ...`` names a span of time; it is a decorator, too.
    `torch.profiler.record_function`."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._open: list[Any] = []

    def __enter__(self) -> record_function:
        span = _range(self.name)
        span.__enter__()
        self._open.append(span)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.pop().__exit__(*error)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            with _range(self.name):
                return function(*args, **kwargs)

        return named
