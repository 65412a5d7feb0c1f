"""Buffers on the GPU that a session reads and writes itself: nothing is allocated for a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.staged_buffer import StagedBuffer
from ox.errors import LoadError
from ox.graph.contract import DTYPES, Array, TensorInfo
from ox.serve.batching.padding import Padding
from ox.serve.runtime.buffer import buffer_shape
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.cuda_provider import NO_GRAPH, DeviceControl, graphs
from ox.serve.runtime.device_memory import DeviceMemory, outside_pool
from ox.serve.runtime.instance import ControlledRun, Feed, Instance
from ox.serve.runtime.lost_device import lost_device
from ox.serve.runtime.own_thread import OwnThread
from ox.serve.runtime.runtime_error import reason

Shape = tuple[int, tuple[tuple[str, int], ...]]  # the samples of a batch, and its padded dimensions by name


class Bucket(NamedTuple):
    """The buffers for batches of one shape, and the graph that a run with them is captured as."""

    binding: Any
    inputs: dict[str, StagedBuffer]
    outputs: list[StagedBuffer]
    graph: int


def graph_shapes(most: int, padding: Padding | None) -> list[Shape]:
    """The shapes that runs are captured for, the largest first: each power of two of samples, and `most`, in each
    bucket of the padded dimensions, which must have largest sizes."""
    rows = sorted({*(1 << power for power in range((most - 1).bit_length())), most}, reverse=True)
    if padding is None:
        return [(size, ()) for size in rows]
    sizes = [[(dim, size) for size in reversed(padding.lengths(dim) or ())] for dim in padding.dims]
    return [(size, each) for each in product(*sizes) for size in rows]


class DeviceInstance(Instance):
    """An instance whose buffers lie on the GPU; a batch is filled up to a power of two of samples, or to `most`.

    Copies and runs are ordered on one stream, for which a batch waits once, at its end. Few shapes, because the CUDA
    provider searches for algorithms anew for each, and captures a graph for each. All shapes lie in the same memory, in
    that of the largest. Never run on a GPU.

    Args:
        run: the session's, with RunOptions as its second argument.
        control: makes what ends the runs of a batch.
        now: the time.
        session: ONNX Runtime's, made for `stream`.
        inputs, outputs: the model's interface, `bindable` with the dimensions of `padding`.
        most: samples of the largest batch; larger ones run without buffers.
        stream: CuPy's, of the GPU of the session.
        captures: whether runs are captured as CUDA graphs, all in one thread.
        padding: how batches have been padded to whole buckets; others run without buffers. None where the first size
            alone varies.
        hold_graphs: gets the bytes that the captured graphs have taken of the GPU.
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
        padding: Padding | None = None,
        hold_graphs: Callable[[int], object] = bool,
    ) -> None:
        super().__init__(lambda feed, control: run(feed, control.options()), control, now)
        self._session, self._most, self._stream, self._padding = session, most, stream, padding
        # ONNX Runtime keeps a graph for the thread that captured it
        self._thread = OwnThread("ox-cuda-graphs") if captures else None
        self._memory = DeviceMemory(None, stream.device_id)
        self._captures, self._captured = captures, set[Shape]()  # the shapes that have a graph
        self._hold_graphs = hold_graphs
        self._failure = ""  # of the last run with buffers that failed
        self._inputs, self._outputs = inputs, outputs
        self._staged: list[StagedBuffer] = []  # of inputs, then outputs: for the largest shape until now
        self._buckets: dict[Shape, Bucket] = {}

    def prepare(self, row: Feed) -> None:
        """Runs the most samples and one; where runs are captured, all shapes: a capture during requests would hold up
        all models.

        Raises:
            LoadError: a shape cannot be captured, or models may not take more of the GPU.
        """
        padding = self._padding
        if self._thread is not None:
            shapes = graph_shapes(self._most, padding)
            largest = row if padding is None else padding.resized(row, dict(shapes[0][1]))
            # takes the arena's memory before what captures take is measured
            self._thread.call(partial(super().__call__, (largest,) * self._most, self.usual))
        else:
            sizes = {} if padding is None else padding.sizes(row)
            whole = tuple((dim, padding.length(dim, size)) for dim, size in sizes.items()) if padding else ()
            shapes = [(self._most, whole), (1, whole)]
        for shape in shapes:
            rows, sizes = shape[0], dict(shape[1])
            feeds = (row if padding is None else padding.resized(row, sizes),) * rows
            self(feeds)
            if self._captures and shape not in self._captured:
                self(feeds)  # memory that was freed meanwhile may have ended the first capture
                if shape not in self._captured:
                    raise self._not_captured(rows, sizes)
        self._hold_graphs(self.graph_bytes)

    def _not_captured(self, rows: int, sizes: Mapping[str, int]) -> LoadError:
        what = ", ".join([f"a batch of {rows}", *(f"{name} {size}" for name, size in sizes.items())])
        what += " cannot be captured as a CUDA graph"
        got, hint, memory = reason(self._failure), "without enable_cuda_graph", self._memory
        others: dict[str, str] = {}
        if memory.is_missing(RuntimeError(self._failure)):
            what, got, others = f"{what}: the GPU has no memory", f"{got}; {memory.holders()}", memory.others()
            hint = f"a smaller max_rows{' or max_dims' if sizes else ''}, or {hint}"
        return LoadError(what, got=got, hint=hint, extra=others)

    def __call__(self, feeds: Sequence[Feed], control: Any = None) -> list[Array]:
        if self._thread is None:
            return self._run_batch(feeds, control or self.usual)
        results: list[Array] = self._thread.call(partial(self._run_batch, feeds, control or self.usual))
        return results

    def _shape(self, feeds: Sequence[Feed], rows: int) -> Shape | None:
        """The shape that a batch is run in; None without buffers."""
        if not 0 < rows <= self._most or len(feeds[0]) > len(self._inputs):  # more: inputs that have default values
            return None
        sizes: dict[str, int] = {}
        if self._padding is not None:
            sizes, *others = map(self._padding.sizes, feeds)
            if any(each != sizes for each in others):
                return None
            if not all(self._padding.is_whole(*each) for each in sizes.items()):
                return None
        return min(1 << (rows - 1).bit_length(), self._most), tuple(sizes.items())

    def _run_batch(self, feeds: Sequence[Feed], control: Any) -> list[Array]:
        rows = sum(len(next(iter(feed.values()))) for feed in feeds)
        shape = self._shape(feeds, rows)
        if shape is not None:
            captures = self._captures and shape not in self._captured
            with GATE.capturing() if captures else GATE.using():
                try:
                    before = outside_pool(self._memory.number) if captures else 0
                    results = self._run_bucket(feeds, rows, shape, control)
                    self.graph_bytes += max(0, before - outside_pool(self._memory.number)) if captures else 0
                except Exception as error:  # CuPy's, of copies and waits
                    lost = lost_device(error, self._stream.device_id)
                    if lost is None:
                        raise
                    raise lost from error
            if results is not None:
                self._captured.add(shape)
                return results
        return super().__call__(feeds, control)

    def _run_bucket(self, feeds: Sequence[Feed], rows: int, shape: Shape, control: Any) -> list[Array] | None:
        """None if the run failed, or there is no memory for the buffers."""
        try:
            bucket = self._buckets.get(shape) or self._bind(shape)
        except Exception as error:  # of CuPy's pool, or of pinned memory
            if not self._memory.is_missing(error):
                raise
            self._failure = f"out of memory: {error}"
            return None
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

    def _bind(self, shape: Shape) -> Bucket:
        rows, sizes = shape[0], dict(shape[1])
        infos, binding = (*self._inputs, *self._outputs), self._session.io_binding()
        shapes = [buffer_shape(info, rows, sizes) for info in infos]
        self._stage(infos, [prod(shape) for shape in shapes])
        buffers = [staged.part(shape) for staged, shape in zip(self._staged, shapes, strict=True)]
        count, number = len(self._inputs), self._stream.device_id
        binds = [binding.bind_input] * count + [binding.bind_output] * len(self._outputs)
        for bind, info, buffer in zip(binds, infos, buffers, strict=True):
            bind(info.name, "cuda", number, buffer.host.dtype.type, buffer.host.shape, buffer.address)
        inputs = {info.name: buffer for info, buffer in zip(self._inputs, buffers, strict=False)}
        bucket = Bucket(binding, inputs, buffers[count:], next(graphs) if self._captures else NO_GRAPH)
        self._buckets[shape] = bucket
        return bucket

    def _stage(self, infos: Sequence[TensorInfo], sizes: Sequence[int]) -> None:
        """Makes memory for so many elements of each tensor, if there is less. The addresses before then end."""
        there = [staged.host.size for staged in self._staged] or [-1] * len(sizes)
        if all(size <= most for size, most in zip(sizes, there, strict=True)):
            return
        for bound in (self._buckets, self._captured, self._staged):
            bound.clear()
        # in memory of this stream: another one's may still be read or written by work that was ordered there
        with cupy().cuda.Device(self._stream.device_id), self._stream:
            self._staged = [
                StagedBuffer([max(pair)], DTYPES[info.dtype], self._stream.device_id)
                for info, *pair in zip(infos, sizes, there, strict=True)
            ]
