"""Work of a GPU that is captured once into a CUDA graph, and launched again as a whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from ox.devices import cuda_state
from ox.devices.gpu import cudnn
from ox.devices.gpu.cublas import KINDS, Cublas
from ox.devices.gpu.cupy_device import cupy
from ox.errors import DeviceError

_capturing = threading.local()


class CaptureError(DeviceError):
    """What is done does not go into a CUDA graph."""


class CuPyInGraphs:
    """The module `cupy` with products that can be captured, and handles of cuDNN that live as long as graphs do."""

    def __init__(self, module: Any, cublas: Cublas) -> None:
        self._module, self.cublas = module, cublas
        self.cudnn_handles = cudnn.handles()

    def matmul(self, a: Any, b: Any, out: Any = None) -> Any:
        """`cupy.matmul`; other element types than cuBLAS has are not captured."""
        multiply = self.cublas.matmul if a.dtype in KINDS and a.dtype == b.dtype else self._module.matmul
        return multiply(a, b, out=out)

    def concatenate(self, arrays: Sequence[Any], axis: int = 0) -> Any:
        """`cupy.concatenate` of arrays of one type, one after the other: CuPy's own copies addresses from the host."""
        first = arrays[0]
        axis %= first.ndim
        sizes = [a.shape[axis] for a in arrays]
        made = self._module.empty((*first.shape[:axis], sum(sizes), *first.shape[axis + 1 :]), first.dtype)
        start = 0
        for array, size in zip(arrays, sizes, strict=True):
            made[(slice(None),) * axis + (slice(start, start + size),)] = array
            start += size
        return made

    def stack(self, arrays: Sequence[Any], axis: int = 0) -> Any:
        """`cupy.stack`."""
        return self.concatenate([self._module.expand_dims(a, axis) for a in arrays], axis % (arrays[0].ndim + 1))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class Chunks:
    """Pieces of device memory, which graphs use for as long as they live. When memory is short, a pool of CuPy gives
    back those with nothing in them, and takes them again later."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}  # by address
        self._idle: list[Any] = []

    def take(self, size: int, device: int) -> int:
        """The address of a piece of this size in bytes, or of up to twice as much."""
        fitting = [chunk for chunk in self._idle if size <= chunk.size <= 2 * size]
        if fitting:
            chunk = min(fitting, key=lambda chunk: chunk.size)
            self._idle.remove(chunk)
        else:
            chunk = cupy().cuda.memory.Memory(size)
            self.held[chunk.ptr] = chunk
        return int(chunk.ptr)

    def give_back(self, address: int, device: int) -> None:
        """The pool has nothing in it, but graphs may write there: it stays."""
        self._idle.append(self.held[address])


class GraphMemory:
    """The stream that graphs are captured on, and the memory of what lives inside of them, on one device.

    Graphs of one memory share it: they are launched one after the other, each in a `turn`. What a graph was captured
    with stays where it is, for as long as this object lives.
    """

    def __init__(self) -> None:
        self._cupy = module = cupy()
        self.stream = module.cuda.Stream(non_blocking=True)
        self._over = module.cuda.Event(disable_timing=True)  # of the last turn
        self.chunks = Chunks()
        allocator = module.cuda.PythonFunctionAllocator(self.chunks.take, self.chunks.give_back)
        self._pool = module.cuda.MemoryPool(allocator.malloc)
        self.namespace = CuPyInGraphs(module, Cublas())
        _refuse_host_copies(module)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A block that launches a graph on the current stream, and reads what it made: after the turn before, which may
        have been on another stream. The host does not wait."""
        stream = self._cupy.cuda.get_current_stream()
        stream.wait_event(self._over)
        try:
            yield
        finally:
            stream.record(self._over)

    def capture(self, work: Callable[[Any], None]) -> Any:
        """The graph of the work, which does not run now: a `cupy.cuda.Graph`, to be launched.

        Args:
            work: is called with the namespace that stands for CuPy. What it makes lies in this memory. It is called
                again where cuDNN first had to be prepared for it.

        Raises:
            CaptureError: it waits for the device, or copies memory of the host, or cuDNN cannot be prepared for it.
        """
        while True:
            try:
                return self._captured(work)
            except cudnn.NotPreparedError as error:
                try:
                    error.prepare()
                except Exception as problem:  # no memory, say
                    raise CaptureError("cuDNN is not prepared for a CUDA graph", got=str(problem)) from problem

    def _captured(self, work: Callable[[Any], None]) -> Any:
        module, stream = self._cupy, self.stream
        allocating = module.cuda.using_allocator(self._pool.malloc)
        try:
            with stream, allocating, cuda_state.standing_in(self.namespace):
                stream.begin_capture()
                _capturing.now = True
                try:
                    work(self.namespace)
                finally:
                    _capturing.now = False
                    try:
                        graph = stream.end_capture()
                    except Exception:  # work that cannot be captured ends the capture
                        graph = None
        except cudnn.NotPreparedError:
            raise
        except Exception as error:
            raise CaptureError("this cannot be captured into a CUDA graph", got=str(error)) from error
        if graph is None:
            raise CaptureError("the capture of a CUDA graph was ended")
        return graph


@cache
def _refuse_host_copies(module: Any) -> None:
    """Let copies from the host raise errors in captures: a graph would read that memory again, when it is long gone.
    CuPy makes them by pinned memory."""
    pool = module.get_default_pinned_memory_pool()

    def allocate(size: int) -> Any:
        if getattr(_capturing, "now", False):
            raise RuntimeError("an array of the host is copied to the device")
        return pool.malloc(size)

    module.cuda.set_pinned_memory_allocator(allocate)
