"""Where the arrays of a decoder lie: in the memory of the host, or of a GPU with pinned copies of what is small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol

import numpy as np

from ox.devices import cuda
from ox.devices.gpu.segment_copy import copy_runs
from ox.devices.gpu.staged_buffer import StagedBuffer
from ox.devices.machine import available_memory
from ox.devices.onnxruntime.probe import CPU, CUDA
from ox.devices.onnxruntime.runtime import onnxruntime
from ox.errors import ServeError
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.generation.device_scores import DeviceScores, stored
from ox.serve.generation.scores import Array, Needs, ScoreRows
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.cuda_provider import NO_GRAPH, provider_options
from ox.serve.runtime.device_memory import DeviceMemory, outside_pool
from ox.serve.runtime.own_thread import OwnThread


class Buffer(Protocol):
    """An array of the host, and the address that a session gets for it."""

    host: Array

    @property
    def address(self) -> int: ...


class HostBuffer:
    """An array that is read and written where it lies."""

    def __init__(self, host: Array) -> None:
        self.host = host

    @property
    def address(self) -> int:
        return int(self.host.ctypes.data)


class HostMemory:
    """Memory of the host, for sessions on the CPU. `kind` and `number` are what a session calls the device."""

    kind, number = "cpu", 0
    captures = False  # whether steps are captured as CUDA graphs, which keep addresses and sizes
    is_lazy = True  # memory is taken where it is first written
    graph_bytes = 0  # of a GPU, that captured steps have taken

    def providers(self) -> list[Any]:
        """What sessions are made with."""
        return [CPU]

    def keep_for(self, session: Any) -> None:
        """Keeps what a session uses as long as it is there."""

    def available(self) -> int:
        """Bytes that can still be allocated."""
        return available_memory()

    def refusal(self, error: Exception) -> ServeError | None:
        """The error for clients if a run or a copy failed because of the device, else None."""
        return None

    def using(self) -> AbstractContextManager[None]:
        """A block that works on arrays."""
        return nullcontext()

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        """An array for the cache."""
        return np.zeros(shape, dtype)

    def from_host(self, array: Array, dtype: Any) -> Any:
        """An array that can be written into one of the cache, of this type."""
        return array

    def address(self, array: Any, row: int) -> int:
        """Where a row of an array of the cache begins."""
        return int(array.ctypes.data) + row * int(array.strides[0])

    def copy_rows(self, source: Any, target: Any, lengths: Sequence[int]) -> None:
        """So many first tokens of the first rows of an array of the cache; of 0, there may be no such row."""
        for row, length in enumerate(lengths):
            if length:
                target[row, :, :length] = source[row, :, :length]

    def move(self, arrays: Sequence[Any], source: int, target: int, length: int) -> None:
        """A row of each array of the cache, [rows, heads, capacity, size], gets the first tokens of another row."""
        for array in arrays:
            array[target, :, :length] = array[source, :, :length]

    def swap(self, arrays: Sequence[Any], one: int, other: int, length: int) -> None:
        """Two rows of each array change their first tokens."""
        for array in arrays:
            copy = array[one, :, :length].copy()
            array[one, :, :length] = array[other, :, :length]
            array[other, :, :length] = copy

    def read_blocks(self, arrays: Sequence[Any], row: int, starts: Sequence[int], size: int) -> list[Any]:
        """Blocks of tokens of a row: for each start, `size` tokens of all arrays."""
        return [[array[row, :, start : start + size].copy() for array in arrays] for start in starts]

    def write_blocks(
        self, arrays: Sequence[Any], row: int, starts: Sequence[int], size: int, blocks: Sequence[Any]
    ) -> None:
        """Copies such blocks into a row."""
        for start, block in zip(starts, blocks, strict=True):
            for array, values in zip(arrays, block, strict=True):
                array[row, :, start : start + size] = values

    def buffer(self, array: Array) -> Buffer:
        """A buffer that holds what `array` does."""
        return HostBuffer(array)

    def empty_buffer(self, shape: Sequence[int], dtype: Any) -> Buffer:
        """A buffer that is written before it is read."""
        return HostBuffer(np.empty(shape, dtype))

    def scores(self, rows: int, vocab_size: int, dtype: Any) -> Any:
        """A buffer for the scores of a run."""
        return self.empty_buffer((rows, vocab_size), dtype)

    def run(
        self,
        session: Any,
        binding: Any,
        sent: Sequence[Buffer],
        scores: Any,
        count: int,
        needs: Needs | None = None,
        graph: int = NO_GRAPH,
    ) -> ScoreRows:
        """Runs a session. Returns the first rows of the scores, which the next run overwrites.

        Args:
            sent: buffers whose `host` was changed since they were last sent.
            scores: of `self.scores`.
            needs: what is needed of each row; None for all. On the host all scores are there.
            graph: the CUDA graph that the run is captured as, the first time, and replayed.
        """
        session.run_with_iobinding(binding)
        rows: Array = scores.host[:count]
        return rows


class GpuMemory(HostMemory):
    """Memory of a GPU. All copies and runs are ordered on one stream, for which a run waits once, at its end. Where
    steps are captured, all runs are of one thread, as ONNX Runtime keeps a graph for the thread that captured it.

    Args:
        number: of the GPU.
        options: of the CUDA provider.

    Raises:
        DeviceError: no CuPy or no GPU.
    """

    kind = "cuda"
    is_lazy = False

    def __init__(self, number: int, options: CudaOptions) -> None:
        self.number, self._cuda = number, options
        with GATE.using():
            self.stream = cuda.stream(device=f"cuda:{number}")
        self.captures = options.enable_cuda_graph
        self._thread = OwnThread("ox-cuda-graphs") if self.captures else None
        self._options: dict[int, Any] = {}  # of runs, by graph

    def providers(self) -> list[Any]:
        return [(CUDA, provider_options(self._cuda, self.stream.ptr, self.number)), CPU]

    def keep_for(self, session: Any) -> None:
        # ONNX Runtime's own object uses the stream until it is destroyed, which bindings put off
        GATE.end_with(session, session._sess, self.stream)

    def available(self) -> int:
        with GATE.using():
            memory = cuda.memory(f"cuda:{self.number}")
        return min(memory.free + memory.held, memory.limit) - memory.used

    def refusal(self, error: Exception) -> ServeError | None:
        return DeviceMemory(self._cuda.gpu_mem_limit, self.number).refusal(error)

    @contextmanager
    def using(self) -> Iterator[None]:
        with GATE.using(), self._entered():
            yield

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with cuda.cupy().cuda.Device(self.number), self.stream:
            yield

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        return cuda.cupy().zeros(tuple(shape), stored(dtype))

    def from_host(self, array: Array, dtype: Any) -> Any:
        return cuda.cupy().asarray(array.astype(dtype).view(stored(dtype)))

    def address(self, array: Any, row: int) -> int:
        return int(array.data.ptr) + row * int(array.strides[0])

    def copy_rows(self, source: Any, target: Any, lengths: Sequence[int]) -> None:
        if not any(lengths):  # there may be no source
            return
        rows, counts = np.arange(len(lengths)), np.array(lengths, np.int64)
        (one, heads, from_, token), (other, _, to, _) = _layout([source, target]).T
        places = one + rows * source.strides[0], other + rows * target.strides[0]
        copy_runs(*places, heads, counts * token, from_, to)

    def move(self, arrays: Sequence[Any], source: int, target: int, length: int) -> None:
        self._between_rows(arrays, source, target, length, exchange=False)

    def swap(self, arrays: Sequence[Any], one: int, other: int, length: int) -> None:
        self._between_rows(arrays, one, other, length, exchange=True)

    def _between_rows(self, arrays: Sequence[Any], source: int, target: int, length: int, exchange: bool) -> None:
        _, heads, stride, token = _layout(arrays)
        rows = ([self.address(array, row) for array in arrays] for row in (source, target))
        copy_runs(*rows, heads, length * token, stride, stride, exchange=exchange)

    def read_blocks(self, arrays: Sequence[Any], row: int, starts: Sequence[int], size: int) -> list[Any]:
        _, heads, _, token = _layout(arrays)
        blocks = [cuda.cupy().empty(int((heads * token).sum()) * size, np.uint8) for _ in starts]
        places, in_blocks, heads, run, stride = self._runs(arrays, row, starts, size, blocks)
        copy_runs(places, in_blocks, heads, run, stride, run)
        return blocks

    def write_blocks(
        self, arrays: Sequence[Any], row: int, starts: Sequence[int], size: int, blocks: Sequence[Any]
    ) -> None:
        places, in_blocks, heads, run, stride = self._runs(arrays, row, starts, size, blocks)
        copy_runs(in_blocks, places, heads, run, run, stride)

    def _runs(
        self, arrays: Sequence[Any], row: int, starts: Sequence[int], size: int, blocks: Sequence[Any]
    ) -> tuple[Array, Array, Array, Array, Array]:
        """Where the tokens of each block [blocks, arrays] lie in the arrays and in the blocks, and of each array its
        heads, the bytes of a head's tokens, and how far heads lie apart."""
        addresses, heads, stride, token = _layout(arrays)
        run = size * token
        part = heads * run  # of an array in a block
        places = addresses + row * np.array([array.strides[0] for array in arrays], np.int64)
        in_blocks = np.array([block.data.ptr for block in blocks], np.int64)[:, None] + (np.cumsum(part) - part)
        return places + np.array(starts, np.int64)[:, None] * token, in_blocks, heads, run, stride

    def buffer(self, array: Array) -> StagedBuffer:
        buffer = self.empty_buffer(array.shape, array.dtype)
        buffer.host[...] = array
        with self.using():
            buffer.to_device(self.stream)
        return buffer

    def empty_buffer(self, shape: Sequence[int], dtype: Any) -> StagedBuffer:
        with self.using():
            return StagedBuffer(shape, dtype, self.number)

    def scores(self, rows: int, vocab_size: int, dtype: Any) -> DeviceScores:
        with self.using():
            return DeviceScores((rows, vocab_size), dtype, self.number)

    def run(
        self,
        session: Any,
        binding: Any,
        sent: Sequence[Any],
        scores: Any,
        count: int,
        needs: Needs | None = None,
        graph: int = NO_GRAPH,
    ) -> ScoreRows:
        run = partial(self._run, session, binding, sent, scores, count, needs, graph)
        rows: ScoreRows = run() if self._thread is None else self._thread.call(run)
        return rows

    def _run(
        self,
        session: Any,
        binding: Any,
        sent: Sequence[Any],
        scores: Any,
        count: int,
        needs: Needs | None,
        graph: int,
    ) -> ScoreRows:
        options = self._options.get(graph)
        captured = graph == NO_GRAPH or options is not None
        if options is None:
            options = onnxruntime().RunOptions()
            options.add_run_config_entry("gpu_graph_id", str(graph))
            options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        with GATE.using() if captured else GATE.capturing(), self._entered():
            for buffer in sent:
                buffer.to_device(self.stream)
            try:
                before = 0 if captured else outside_pool(self.number)
                session.run_with_iobinding(binding, options)
                self.graph_bytes += 0 if captured else max(0, before - outside_pool(self.number))
                result = scores.copy(count, needs, self.stream)
            finally:  # what was ordered reads and writes the buffers
                self.stream.synchronize()
        self._options[graph] = options
        rows: ScoreRows = result()
        return rows


def _layout(arrays: Sequence[Any]) -> Array:
    """Of arrays of a cache, [rows, heads, capacity, size] each: their addresses, heads, and the bytes from a head to
    the next one and from a token to the next one."""
    each = [(array.data.ptr, array.shape[1], array.strides[1], array.shape[3] * array.itemsize) for array in arrays]
    return np.array(each, np.int64).T


HOST = HostMemory()
