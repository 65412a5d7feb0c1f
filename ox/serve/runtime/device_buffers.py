"""Buffers on the GPU that a session reads and writes itself: nothing is allocated for a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from ox.devices.cuda import cupy
from ox.devices.staged_buffer import StagedBuffer
from ox.errors import LoadError
from ox.graph.contract import DTYPES, Array, TensorInfo
from ox.serve.runtime.buffer import buffer_shape
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.cuda_provider import NO_GRAPH, DeviceControl
from ox.serve.runtime.device_memory import DeviceMemory
from ox.serve.runtime.instance import ControlledRun, Feed, Instance
from ox.serve.runtime.lost_device import lost_device
from ox.serve.runtime.own_thread import OwnThread
from ox.serve.runtime.runtime_error import reason

# Of all instances: ONNX Runtime replays a graph with the addresses that it was captured with.
_graphs = count(1)


class Bucket(NamedTuple):
    """The buffers for batches of one size, and the graph that a run with them is captured as."""

    binding: Any
    inputs: dict[str, StagedBuffer]
    outputs: list[StagedBuffer]
    graph: int


class DeviceInstance(Instance):
    """An instance whose buffers lie on the GPU, one set for each bucket of rows; a batch is filled up to its bucket.

    Copies and runs are ordered on one stream, for which a batch waits once, at its end. Few shapes, because the CUDA
    provider searches for algorithms anew for each, and captures a graph for each. Never run on a GPU.

    Args:
        run: the session's, with RunOptions as its second argument.
        control: makes what ends the runs of a batch.
        now: the time.
        session: ONNX Runtime's, made for `stream`.
        inputs, outputs: the model's interface, `bindable`.
        most: rows of the largest bucket; larger batches run without buffers.
        stream: CuPy's, of the GPU of the session.
        captures: whether runs are captured as CUDA graphs, all in one thread.
    """

    def __init__(
        self,
        run: ControlledRun,
        control: Callable[[], DeviceControl],
        now: Callable[[], float],
        session: Any,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        most: int,
        stream: Any,
        captures: bool,
    ) -> None:
        super().__init__(lambda feed, control: run(feed, control.options()), control, now)
        self._session, self._most, self._stream = session, most, stream
        # ONNX Runtime keeps a graph for the thread that captured it
        self._thread = OwnThread("ox-cuda-graphs") if captures else None
        self._memory = DeviceMemory(None, stream.device_id)
        self._captures, self._captured = captures, set[int]()  # the sizes that have a graph
        self._failure = ""  # of the last run with buffers that failed
        self._inputs, self._outputs = inputs, outputs
        self._buckets: dict[int, Bucket] = {}

    def prepare(self, row: Feed) -> None:
        """Runs the least and the most rows; where runs are captured, all sizes: a capture during requests would hold up
        all models.

        Raises:
            LoadError: a size cannot be captured.
        """
        sizes = [1 << power for power in range((self._most - 1).bit_length())] if self._captures else [1]
        for size in (*sizes, self._most):
            self((row,) * size)
            if self._captures and size not in self._captured:
                self((row,) * size)  # memory that was freed meanwhile may have ended the first capture
                if size not in self._captured:
                    what = f"a batch of {size} cannot be captured as a CUDA graph"
                    got, hint, memory = reason(self._failure), "without enable_cuda_graph", self._memory
                    if memory.is_missing(RuntimeError(self._failure)):
                        what, got = f"{what}: the GPU has no memory", f"{got}; {memory.holders()}"
                        hint = f"a smaller max_rows, or {hint}"
                    raise LoadError(what, got=got, hint=hint)

    def __call__(self, feeds: Sequence[Feed], control: Any = None) -> list[Array]:
        if self._thread is None:
            return self._run_batch(feeds, control or self.usual)
        made: list[Array] = self._thread.call(partial(self._run_batch, feeds, control or self.usual))
        return made

    def _run_batch(self, feeds: Sequence[Feed], control: Any) -> list[Array]:
        rows = sum(len(next(iter(feed.values()))) for feed in feeds)
        size = min(1 << (rows - 1).bit_length(), self._most)
        if rows <= self._most:
            with GATE.capturing() if self._captures and size not in self._captured else GATE.using():
                try:
                    found = self._run_bucket(feeds, rows, size, control)
                except Exception as error:  # CuPy's, of copies and waits
                    lost = lost_device(error, self._stream.device_id)
                    if lost is None:
                        raise
                    raise lost from error
            if found is not None:
                self._captured.add(size)
                return found
        return super().__call__(feeds, control)

    def _run_bucket(self, feeds: Sequence[Feed], rows: int, size: int, control: Any) -> list[Array] | None:
        """None if the run failed."""
        bucket = self._buckets.get(size) or self._bind(size)
        for name, buffer in bucket.inputs.items():
            np.concatenate([feed[name] for feed in feeds], out=buffer.host[:rows])
            buffer.host[rows:] = buffer.host[:1]  # a row that is known to be valid
            buffer.to_device(self._stream)
        self.gathered_at = self.now()
        try:
            self._session.run_with_iobinding(bucket.binding, control.options(bucket.graph, waits=False))
        except Exception as error:  # the run without buffers reports the error, or succeeds
            self._failure = str(error)
            self._stream.synchronize()  # what was ordered still reads the buffers
            if control.terminate:
                raise
            return None
        for output in bucket.outputs:
            output.to_host(self._stream)
        self._stream.synchronize()
        return [output.host[:rows].copy() for output in bucket.outputs]

    def _bind(self, size: int) -> Bucket:
        binding = self._session.io_binding()

        def bound(info: TensorInfo, bind: Callable[..., None]) -> StagedBuffer:
            number = self._stream.device_id
            buffer = StagedBuffer(buffer_shape(info, size), DTYPES[info.dtype], number)
            bind(info.name, "cuda", number, buffer.host.dtype.type, buffer.host.shape, buffer.address)
            return buffer

        # in memory of this stream: another one's may still be read or written by work that was ordered there
        with cupy().cuda.Device(self._stream.device_id), self._stream:
            inputs = {info.name: bound(info, binding.bind_input) for info in self._inputs}
            outputs = [bound(info, binding.bind_output) for info in self._outputs]
        graph = next(_graphs) if self._captures else NO_GRAPH
        self._buckets[size] = Bucket(binding, inputs, outputs, graph)
        return self._buckets[size]
