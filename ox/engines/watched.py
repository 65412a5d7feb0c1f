"""How a profiler sees what an engine runs: each piece of work is a call that a watch (`ox.core.mode.Watch`) runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ox.core.mode import MODE, Watch, switch_mode
from ox.engines.engine import Array, Executable
from ox.graph.ir import Node


@dataclass(frozen=True)
class EngineKernel:
    """What an engine runs that is no operator of ox: a generated kernel, a session."""

    name: str
    domain: str = ""
    fused: bool = False
    rules: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Origin:
    """Where in the user's code something comes from: "" for several places; and whether its results lie in memory that
    was planned before, and are not new."""

    module: str = ""
    where: str = ""
    planned: bool = False


def common_origin(nodes: Sequence[Node], planned: bool = False) -> Origin:
    """The module and the line that all nodes have in common."""
    modules, lines = {node.module for node in nodes}, {node.where for node in nodes}
    module, line = (each.pop() if len(each) == 1 else "" for each in (modules, lines))
    return Origin(module, line, planned)


@runtime_checkable
class StepByStep(Protocol):
    """An executable that shows its steps to a watch."""

    def watched(self, arrays: Sequence[Array], watch: Watch) -> list[Array]:
        """What calling it does and returns, with each step run by the watch."""
        ...


def run(name: str, executable: Executable, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of an executable; under a watch its steps, or where they are unknown the whole of it, are seen.

    Args:
        name: of the engine.
    """
    watch = MODE.get().watch
    if watch is None:
        return executable(arrays)
    with switch_mode(watch=None):
        if isinstance(executable, StepByStep):
            return executable.watched(arrays, watch)
        made = watch(lambda *_: tuple(executable(arrays)), EngineKernel(name), list(arrays), {}, None)
        return list(made)
