"""A program as one CUDA graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from ox.devices.gpu.cuda_graph import GraphMemory
from ox.devices.gpu.cupy_device import cupy
from ox.engines.engine import Array
from ox.engines.native.cuda.program import Program, Values
from ox.graph.ir import Value

LOAD = 16  # bytes of the widest load of a kernel
ALIGNMENT = 256  # bytes, as CUDA allocates; of results, which are handed on
SMALL = 1 << 16  # bytes of a result that is copied together with others: who keeps one of them keeps all


class _Block:
    """Several arrays in one piece of device memory."""

    def __init__(self, shapes: dict[Value, tuple[int, ...]], alignment: int) -> None:
        self._places: dict[Value, tuple[int, int]] = {}
        self._kinds = {v: (np.dtype(v.dtype), shape) for v, shape in shapes.items()}
        size = 0
        for v, (dtype, shape) in self._kinds.items():
            count = prod(shape) * dtype.itemsize
            self._places[v] = size, size + count
            size = -(-(size + count) // alignment) * alignment
        self.memory = cupy().empty(size, np.uint8)
        self.size = size

    def views(self, memory: Any) -> Values:
        """The arrays in memory of the block's size."""
        found: Values = {}
        for v, (start, end) in self._places.items():
            dtype, shape = self._kinds[v]
            found[v] = memory[start:end].view(dtype).reshape(shape)
        return found


class Captured:
    """The CUDA graph of a program, for inputs that lie where they lay at its capture.

    Raises:
        CaptureError: the work waits for the device, or copies memory of the host.
    """

    def __init__(self, program: Program, memory: GraphMemory, arrays: Sequence[Array], moving: Iterable[int]) -> None:
        """
        Args:
            moving: the numbers of inputs that are copied to one place before each launch.
        """
        xp = cupy()
        self._program, self._memory = program, memory
        inputs, sizes = program.task.graph.inputs, program.halves.sizes
        # which lie as the inputs do: cuDNN computes images channels last where they come so
        self._buffers = {i: xp.empty_like(arrays[i]) for i in moving}
        self._uploads = _Block({v: sizes[v] for v in program.uploads}, LOAD)
        self._staged = np.empty(self._uploads.size, np.uint8)
        self._staging = self._uploads.views(self._staged)
        small = {v: sizes[v] for v in program.results if v in sizes and _bytes(v, sizes[v]) <= SMALL}
        self._small = _Block(small, ALIGNMENT)
        self._small_results = self._small.views(self._small.memory)
        self._tables = xp.empty(program.table_length, np.int64)
        tables = np.zeros(program.table_length, np.int64)
        before: Values = {
            v: self._buffers.get(i, arrays[i]) for i, v in enumerate(inputs) if v in program.halves.on_device
        }
        before |= program.constants
        before |= self._uploads.views(self._uploads.memory)
        values: Values = {}

        def work(namespace: Any) -> None:
            values.clear()
            values.update(before)
            program.run(values, namespace, tables, self._tables.data.ptr, None)
            for v, place in self._small_results.items():
                place[...] = values[v]

        self._graph = memory.capture(work)
        self._tables.set(tables)
        self._large: dict[Value, Array] = {v: values[v] for v in program.results if v not in self._small_results}

    def launch(self, arrays: Sequence[Array]) -> Values:
        """The outputs of the task, those of the device in new memory. Ordered on the current stream.

        Args:
            arrays: the task's inputs.
        """
        from_host = self._program.run_host(arrays)
        for v, place in self._staging.items():
            place[...] = from_host[v]
        with self._memory.turn():
            for i, buffer in self._buffers.items():
                buffer[...] = arrays[i]
            if self._staging:
                self._uploads.memory.set(self._staged)
            self._graph.launch()
            found = {v: array.copy() for v, array in self._large.items()}
            if self._small_results:
                found |= self._small.views(self._small.memory.copy())
        return self._program.results_of_host(arrays, from_host) | found


def _bytes(value: Value, shape: tuple[int, ...]) -> int:
    return prod(shape) * np.dtype(value.dtype).itemsize
