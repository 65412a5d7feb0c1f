"""What is switched on in this context: gradients, a recording, a forced executor. Threads never meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ox.devices import executors


class Recorder(Protocol):
    """What the choke point tells: every call, every write in place, and which tensors are the same value."""

    def add(self, op: Any, inputs: tuple[Any, ...], attributes: dict[str, Any], outputs: tuple[Any, ...]) -> None: ...

    def alias(self, new: Any, old: Any) -> None: ...

    def custom(self) -> None: ...

    def came_from(self, node: Any, since: int) -> None: ...

    def count(self) -> int: ...

    def value(self, tensor: Any) -> Any: ...

    def changing(self, tensor: Any) -> tuple[bool, ...]: ...

    def mark(self, tensor: Any) -> None: ...

    def body(self, function: Callable[..., Any], inputs: Any = ()) -> tuple[Any, list[Any], list[Any]]: ...


class Watch(Protocol):
    """What is told of every remembered call, while anomalies are looked for or saved tensors are packed."""

    def made(self, node: Any) -> None: ...

    def gradients(self, node: Any, cotangents: list[Any], differentiable: bool) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Mode:
    """The switches. Immutable: a context manager puts a changed copy in place and the old one back."""

    grad: bool = True
    inference: bool = False
    recording: Recorder | None = None
    executor: Callable[..., Any] | None = None  # forced for every operator; None picks by device, dtype and size
    modules: tuple[Any, ...] = ()  # the nn.Modules whose forward is running, outermost first
    watch: Watch | None = None


MODE: ContextVar[Mode] = ContextVar("ox_mode", default=Mode())  # noqa: B039 (frozen)


@contextmanager
def switched(**changes: Any) -> Iterator[Mode]:
    """Run a block with some switches changed."""
    mode = replace(MODE.get(), **changes)
    token = MODE.set(mode)
    try:
        yield mode
    finally:
        MODE.reset(token)


executors._switches[:] = [switched]
