"""A task that is ready to run on a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np

from ox.autograd.accumulate_grad import owner
from ox.core.mode import Watch, switch_mode
from ox.devices import cuda_state
from ox.devices.gpu.cuda_graph import CaptureError, GraphMemory
from ox.devices.gpu.cupy_device import cupy
from ox.engines.engine import Array, Engine, Task
from ox.engines.native.cuda.captured import Captured
from ox.engines.native.cuda.program import Program, Values
from ox.engines.native.explain import groups
from ox.engines.native.input_check import check_inputs
from ox.engines.native.launches import Launch
from ox.graph.ir import Node, Value

Place = tuple[int, tuple[int, ...]] | None  # address and strides
MOST_MOVES = 8  # of a task's states, each of which takes another capture
FEW_DISCOVERIES = 2  # of inputs that lie elsewhere; behind them, all inputs but states are copied to one place


class GpuExecutable:
    """Runs the work step by step in its first call, which compiles kernels and loads libraries, and as a CUDA graph
    from the second one on. What cannot be captured runs step by step. Calls from several threads take turns."""

    def __init__(self, task: Task, host: Engine, memory: Callable[[], GraphMemory], lock: Lock) -> None:
        """
        Args:
            host: the engine for what is computed on the CPU.
            memory: that of graphs.
            lock: held during a call, by all that share the memory.
        """
        self._task, self._host, self._memory, self._lock = task, host, memory, lock
        self._inputs = task.graph.inputs
        states = set(task.updates.values())
        self._states = {i for i, v in enumerate(self._inputs) if v in states}
        self._program: Program | None = None
        self._on_device: list[bool] = []
        self._step_by_step: str | None = None  # why
        self._graph: Captured | None = None
        self._places: list[Place] = []  # of the inputs in the call before
        self._moving: set[int] = set()  # inputs that lie elsewhere in each call
        self._moves = self._discoveries = 0

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs for one array an input, in order; the arrays of state hold their next values afterwards.

        Raises:
            DTypeError: an array of another element type than was recorded.
            ShapeError: another shape.
            ArgumentError: another number of arrays.
            OxError: what eager calls of the operators raise.
        """
        with self._lock, cuda_state.at(*arrays), switch_mode(recording=None, grad=False, autocast=None):
            program = self._prepared(arrays)
            if self._step_by_step is None and self._places:
                captured = self._captured(program, arrays)
                if captured is not None:
                    return self._separate(captured.launch(arrays))
            self._places = _places(arrays)
            return self._run(program, arrays, None)

    def watched(self, arrays: Sequence[Array], watch: Watch) -> list[Array]:
        """The same step by step, with each piece of work run by the watch."""
        with self._lock, cuda_state.at(*arrays), switch_mode(recording=None, grad=False, autocast=None):
            return self._run(self._prepared(arrays), arrays, watch)

    def _prepared(self, arrays: Sequence[Array]) -> Program:
        check_inputs(self._inputs, arrays)
        on_device = [not isinstance(array, np.ndarray) for array in arrays]
        if self._program is None or on_device != self._on_device:
            self._program, self._on_device = Program(self._task, on_device, self._host), on_device
            self._step_by_step, self._graph, self._places = self._program.uncapturable, None, []
            # calls on other streams read its tables and constants, too
            cupy().cuda.get_current_stream().synchronize()
        return self._program

    def _run(self, program: Program, arrays: Sequence[Array], watch: Watch | None) -> list[Array]:
        xp = cupy()
        from_host = program.run_host(arrays)
        values: Values = {v: a for v, a in zip(self._inputs, arrays, strict=True) if not isinstance(a, np.ndarray)}
        values |= program.constants
        values |= {v: xp.asarray(from_host[v]) for v in program.uploads}
        values |= {v: a for v, a in from_host.items() if v not in values}  # shapes and axes
        # with the products of graphs, each call gives the same numbers
        program.run(values, xp if self._step_by_step else self._memory().namespace, None, 0, watch)
        for new, state in program.brought_back.items():
            np.copyto(arrays[self._inputs.index(state)], values[new].get(), casting="no")
        return self._results(program, arrays, values, from_host)

    def _results(self, program: Program, arrays: Sequence[Array], values: Values, from_host: Values) -> list[Array]:
        """The outputs, each in memory of its own."""
        taken = {id(owner(a)) for a in (*arrays, *program.constants.values(), *(values[v] for v in program.uploads))}
        found = program.results_of_host(arrays, from_host)
        for v in program.results:
            array = values[v]
            found[v] = array.copy() if id(owner(array)) in taken else array
            taken.add(id(owner(found[v])))
        return self._separate(found)

    def _separate(self, found: Values) -> list[Array]:
        """The outputs in order; what is an output twice has memory of its own each time."""
        made: list[Array] = []
        seen: set[Value] = set()
        for v in self._task.graph.outputs:
            made.append(found[v].copy() if v in seen and v not in self._task.updates else found[v])
            seen.add(v)
        return made

    def _captured(self, program: Program, arrays: Sequence[Array]) -> Captured | None:
        """The graph for these arrays, captured now if there is none; None where it cannot be."""
        places = _places(arrays)
        moved = {i for i, (a, b) in enumerate(zip(places, self._places, strict=True)) if a != b}
        fresh = moved - self._states - self._moving
        if self._graph is not None and not fresh and self._states.isdisjoint(moved):
            return self._graph
        self._graph, self._places = None, places
        if fresh:
            self._discoveries += 1
            several = self._discoveries > FEW_DISCOVERIES
            self._moving |= (
                {i for i, place in enumerate(places) if place is not None} - self._states if several else fresh
            )
        if not self._states.isdisjoint(moved):
            self._moves += 1
            if self._moves > MOST_MOVES:
                self._step_by_step = "its states lie elsewhere in each call"
                return None
        try:
            self._graph = Captured(program, self._memory(), arrays, self._moving)
        except CaptureError as error:
            self._step_by_step = str(error.got or error)
        return self._graph

    def explain(self) -> list[str]:
        """What runs, for people."""
        if self._program is None:
            return ["on a GPU; prepared in the next call"]
        work = self._program.work
        found = [part for part in work if isinstance(part, Launch)]
        fused = sum(len(region.nodes) for launch in found for region in launch.regions)
        single = Counter(part.node.key for part in work if not isinstance(part, Launch))
        count = fused + sum(single.values())
        lines = [f"on a GPU: {fused} of {count} nodes in {len(found)} launches of generated kernels"]
        if self._program.unfused is not None:
            lines.append(f"nothing is fused: {self._program.unfused}")
        if single:
            lines.append("by CuPy: " + ", ".join(f"{key} {n}" for key, n in sorted(single.items())))
        host, uploads = self._program.halves.host.graph.nodes, self._program.uploads
        lines.append(f"before, on the host: {len(host)} nodes; {len(uploads)} arrays are copied to the device")
        if self._step_by_step is not None:
            return [*lines, f"step by step: {self._step_by_step}"]
        return [*lines, "one CUDA graph" if self._graph is not None else "a CUDA graph is captured in the next call"]

    def groups(self) -> list[tuple[str, list[Node]]]:
        """The nodes after the passes; those of a generated kernel together."""
        return groups(self._program.work) if self._program is not None else [("", [n]) for n in self._task.graph.nodes]


def _places(arrays: Sequence[Array]) -> list[Place]:
    """Where arrays lie on the device, and how; None for those of the host."""
    return [None if isinstance(array, np.ndarray) else (array.data.ptr, array.strides) for array in arrays]
