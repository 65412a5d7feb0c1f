"""The engine ONNX Runtime: a task as one session, in the threads and the arena that all sessions of ox share."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

from ox.devices.machine import threads
from ox.devices.onnxruntime import node_session
from ox.dtypes import float64, onnx_type
from ox.engines.engine import Array, Task
from ox.engines.known_defects import ONNXRUNTIME, packed, refuse
from ox.engines.onnx_task import OnnxTask, bits
from ox.errors import DeviceError


class OnnxRuntime:
    """Runs tasks on the CPU in ONNX Runtime, which has to be installed (the extra ``cpu``)."""

    name = "onnxruntime"
    writes_last = True

    def build(self, task: Task) -> Session:
        """One session for the task.

        Raises:
            DeviceError: ONNX Runtime is not installed, or has no kernel for an operator; names the user's line.
            ExportError: the graph has what no file of ONNX can say.
        """
        node_session.runtime()
        return Session(OnnxTask(task))


class Session:
    """A task that is ready to run. Calls from several threads run one after another.

    Inputs are read where they lie. Results are written into new arrays, and the next state into memory of the engine's
    own, from where it goes into the caller's: a kernel may write before it has read.
    """

    def __init__(self, task: OnnxTask) -> None:
        runtime = node_session.runtime()
        refuse(task.graph, "ONNX Runtime", ONNXRUNTIME, packed)
        self.task, self._version = task, runtime.module.__version__
        self._session = self._make(runtime)
        self._binding = self._session.io_binding()
        self._bound: list[Any] = [None] * len(task.inputs)  # the state arrays whose memory is bound
        self._state = {place for place in task.updates if place is not None}
        self._codes = [None if v.dtype is None else onnx_type(v.dtype) for v in task.graph.inputs]
        self._buffers: list[Array | None] = []
        self._lock = Lock()
        for v, sizes, place in zip(task.graph.outputs, task.sizes, task.state, strict=True):
            buffer = None
            if sizes is not None and place is not None:
                assert v.dtype is not None
                buffer = np.empty(sizes, v.dtype)
            self._buffers.append(buffer)
            self._bind_output(v.name, buffer)

    def _make(self, runtime: node_session.Runtime) -> Any:
        # the runtime's own fusions are made for float32 and lose the digits of float64
        wide = any(v.dtype == float64 and v.shape for v in self.task.graph.values())
        try:
            return runtime.session(self.task.model.SerializeToString(), "ENABLE_BASIC" if wide else "ENABLE_ALL")
        except Exception as error:  # the exceptions of ONNX Runtime share no base class
            raise self.task.error(f"ONNX Runtime {self._version} does not take the graph", error) from error

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs, in order.

        Raises:
            DTypeError, ShapeError: an array that the task was not built for.
            BoundsError: an index outside of a dimension.
            DeviceError: the call failed, or the process is a fork of the one that made the session.
        """
        if node_session.forked:
            raise DeviceError(
                "the threads of ONNX Runtime did not come along into this forked process",
                hint="multiprocessing with the start method 'spawn', or the engine 'eager'",
            )
        with self._lock:
            self.task.check(arrays, self._bound)
            held = self._bind_inputs(arrays)
            made = self._bind_outputs()
            try:
                self._session.run_with_iobinding(self._binding)
            except Exception as error:
                self._bound = [None] * len(self._bound)
                raise self.task.failure(f"ONNX Runtime {self._version} cannot run the graph", error, arrays) from error
            del held
            return self.task.write_back(arrays, self._take(made))

    def _bind_inputs(self, arrays: Sequence[Array]) -> list[Array]:
        """Bind what is not bound since the last call. Returns what has to live until the end of the run."""
        expected, bound = self.task.inputs, self._bound
        held = []
        for i, array in enumerate(arrays):
            if array is bound[i]:
                continue
            memory = bits(array)
            self._binding.bind_input(expected[i].name, "cpu", 0, self._codes[i], array.shape, memory.ctypes.data)
            held.append(memory)
            bound[i] = array if i in self._state and memory.ctypes.data == array.ctypes.data else None
        return held

    def _bind_outputs(self) -> list[Array | None]:
        """New memory for each result of known sizes that is no state; None where the runtime has to make it."""
        made: list[Array | None] = []
        for v, sizes, buffer in zip(self.task.graph.outputs, self.task.sizes, self._buffers, strict=True):
            if buffer is None:
                assert v.dtype is not None
                buffer = None if sizes is None else np.empty(sizes, v.dtype)
                self._bind_output(v.name, buffer)
            made.append(buffer)
        return made

    def _bind_output(self, name: str, memory: Array | None) -> None:
        if memory is None:
            self._binding.bind_output(name, "cpu")
        else:
            code = onnx_type(memory.dtype)
            self._binding.bind_output(name, "cpu", 0, code, memory.shape, memory.ctypes.data)

    def _take(self, made: list[Array | None]) -> list[Array]:
        """The results; those that the runtime made are copied out of its arena."""
        found = self._binding.get_outputs() if any(array is None for array in made) else made
        return [node_session.array_of(y) if array is None else array for array, y in zip(made, found, strict=True)]

    def explain(self) -> list[str]:
        """What runs, and how much memory the engine has of its own."""
        functions = sum(1 for node in self.task.graph.nodes if node.domain)
        state = sum(buffer.nbytes for buffer in self._buffers if buffer is not None)
        return [
            f"ONNX Runtime {self._version}: {len(self.task.graph.nodes)} operators in one session, {threads()} threads",
            *([f"{functions} of them are functions of ox, which it inlines"] if functions else []),
            f"{state:,} bytes for the next state beside the state",
        ]
