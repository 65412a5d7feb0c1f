"""What an engine is: it takes a graph once, and then runs it on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ox.graph.ir import Graph, Node, Value

Array = Any  # NumPy's, or CuPy's on a GPU


@dataclass(frozen=True)
class Task:
    """A graph to run, and what may be done with the memory of its inputs.

    The graph may hold functions of the domain ``ox`` as nodes (`Recording.keeps_fused`), and constants by value. Its
    `Value.shape` are the sizes of the call that was recorded; a string in `Value.dims` of an input is a size that
    differs from call to call.

    `updates` names the state: for an output, the input whose next value it is. An engine writes it into that input's
    memory, after the last read of the old value, and returns the same array. Everything else that it returns is new
    memory, which the caller may keep.

    `on_device` says of results and gradients whether they lay on a GPU in the recorded call.
    """

    graph: Graph
    updates: dict[Value, Value] = field(default_factory=dict)
    on_device: Mapping[Value, bool] = field(default_factory=dict)


class Executable(Protocol):
    """A task that is ready to run."""

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs of the graph, in order, for one array for each of its inputs, in order.

        Raises:
            OxError: an input of another element type or shape than the task was built for; a call that failed.
        """
        ...

    def explain(self) -> list[str]:
        """Lines for people: what was fused, which kernels run, how much memory is planned."""
        ...


@runtime_checkable
class Grouped(Protocol):
    """An executable that can say which nodes it runs together."""

    def groups(self) -> list[tuple[str, list[Node]]]:
        """Nodes in an order in which they can run, those that run together in one list with a line that says as what;
        "" for a node by itself."""
        ...


class Engine(Protocol):
    """Builds executables. Building has no effect on the graph.

    An engine whose executables write the state only after everything is computed, and none of it where a run fails, may
    say so by an attribute ``writes_last = True``: what eager code has written before the error is written then.
    """

    name: str

    def build(self, task: Task) -> Executable:
        """Prepare a task.

        Raises:
            OxError: the engine lacks an operator or is not installed, and the graph stays eager.
        """
        ...


@runtime_checkable
class ForGpu(Protocol):
    """An engine of CPUs that has another one for calls on a GPU."""

    on_gpu: Engine
