"""Collectives on CuPy arrays over NCCL: raw `cupy.cuda.nccl`, for CuPy's own wrapper takes no bfloat16.

The only module that imports `cupy.cuda.nccl`. It has not yet run on GPUs; see docs/gpu.md. Operations run on their own
stream, after the work of the current stream; `Work.wait` lets the current stream wait for their event.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ox.devices import cpu, cuda
from ox.distributed.environment import Launch
from ox.distributed.reduce_op import ReduceOp
from ox.errors import ArgumentError, DeviceError, DistributedError, DTypeError
from ox.installation import install_command

TYPES = {
    "int8": "INT8", "uint8": "UINT8", "bool": "UINT8", "int32": "INT32", "uint32": "UINT32", "int64": "INT64",
    "uint64": "UINT64", "float16": "FLOAT16", "float32": "FLOAT32", "float64": "FLOAT64", "bfloat16": "BFLOAT16",
}  # fmt: skip
OPS = {"sum": "SUM", "avg": "AVG", "product": "PROD", "min": "MIN", "max": "MAX"}
OLDEST = 22501  # of what the extras install; before 2.19.1 ncclCommAbort hangs (NVIDIA/nccl#992, #549, #1013)
ID_BYTES = 128  # NCCL_UNIQUE_ID_BYTES
BOOL_OPS = {"sum": "MAX", "product": "MIN"}  # bools are sent as bytes of 0 and 1


def library() -> Any:
    """`cupy.cuda.nccl`. Raises DeviceError where CuPy, a device or NCCL is missing, or NCCL is too old."""
    cuda.cupy()
    try:
        from cupy.cuda import nccl
    except ImportError as error:
        raise DeviceError("CuPy finds no NCCL", got=str(error), hint=_hint()) from error
    if not getattr(nccl, "available", True):
        raise DeviceError("CuPy finds no NCCL", hint=_hint())
    if (version := nccl.get_version()) < OLDEST:
        raise DeviceError(
            "this NCCL is too old", expected=f"{_text(OLDEST)} or newer", got=_text(version), hint=_hint()
        )
    return nccl


def _hint() -> str:
    return f"{install_command('cuda13', 'nccl13')} (for CUDA 12: the extras cuda12 and nccl12)"


def _text(version: int) -> str:
    return f"{version // 10_000}.{version // 100 % 100}.{version % 100}"


def available() -> bool:
    """Whether CuPy, a device and NCCL are there."""
    try:
        library()
    except DeviceError:
        return False
    return True


def start(launch: Launch, timeout: float, device: Any) -> NCCLBackend:
    """The backend of all ranks, each on its own device: `device`, or that of its rank on this machine, which becomes
    the current one of this thread. The ranks meet over MPI, whoever started them; it carries NCCL's ids, checks between
    ranks and notes about those that are missing.

    Raises:
        DeviceError: no NCCL, no MPI, or fewer devices than ranks. DistributedError: ranks are missing.
    """
    from ox.distributed.init import start_mpi

    library()
    if device is None:
        cuda.check_ranks(launch.local_size)  # the same error on all of them, and nobody waits for the others
    cuda.use(f"cuda:{launch.local_rank}" if device is None else str(device))
    return NCCLBackend(start_mpi(launch, timeout))


def _shared_id(host: Any) -> bytes:
    """The id of a new communicator, which rank 0 makes, on all ranks of an MPI backend."""
    made = library().get_unique_id() if host.rank == 0 else bytes(ID_BYTES)
    shared = np.frombuffer(made, np.uint8).copy()
    request = host.broadcast(shared, 0)
    while not request.test():
        pass
    return shared.tobytes()


class NCCLRequest:
    """An operation on the backend's stream."""

    source = 0

    def __init__(self, check: Callable[[], None], stream: Any, keep: Any) -> None:
        """`keep`: the arrays of the operation, whose memory stays until it is over."""
        self._check, self._stream, self._keep = check, stream, [keep]
        self._event = stream.record(cuda.cupy().cuda.Event(disable_timing=True))

    def then(self, finish: Callable[[], None]) -> None:
        """Let kernels that `finish` launches follow the operation."""
        with self._stream:
            finish()
        self._event = self._stream.record(self._event)
        self._keep.append(finish)

    def join(self) -> None:
        """Let the current stream wait until the operation is over."""
        cuda.cupy().cuda.get_current_stream().wait_event(self._event)

    def test(self) -> bool:
        """Whether it is over. Raises DistributedError for what NCCL noticed since it began."""
        self._check()
        if not self._event.done:
            return False
        self._keep.clear()
        return True


class NCCLBackend:
    """The operations of one communicator. See `ox.distributed.backend.Backend`."""

    name = "nccl"
    on_stream = True

    def __init__(self, host: Any) -> None:
        """`host`: the MPI backend of the same ranks."""
        self._host, self.rank, self.size = host, host.rank, host.size
        self._comm = library().NcclCommunicator(self.size, _shared_id(host), self.rank)
        self._stream = cuda.cupy().cuda.Stream(non_blocking=True)
        self._lock = threading.Lock()  # a thread asks for errors until the communicator is gone
        self._open = True

    @property
    def threads(self) -> bool:
        """Whether a thread may watch operations, for which it needs MPI."""
        return bool(self._host.threads)

    def _run(self, call: Callable[[int], None], keep: Any) -> NCCLRequest:
        """`call` on the backend's stream, after all that the current one had to do."""
        api = cuda.cupy().cuda
        self._stream.wait_event(api.get_current_stream().record(api.Event(disable_timing=True)))
        call(self._stream.ptr)
        return NCCLRequest(self._check, self._stream, keep)

    def _check(self) -> None:
        try:
            with self._lock:
                if self._open:
                    self._comm.check_async_error()
        except library().NcclError as error:
            raise DistributedError("NCCL has failed", got=str(error), hint="NCCL_DEBUG=INFO shows why") from error

    def all_reduce(self, array: Any, op: ReduceOp) -> NCCLRequest:
        at, count, kind = _parts(array)

        def call(stream: int) -> None:
            self._comm.allReduce(at, at, count, kind, _operation(op, array), stream)

        return self._run(call, array)

    def reduce(self, array: Any, root: int, op: ReduceOp) -> NCCLRequest:
        at, count, kind = _parts(array)

        def call(stream: int) -> None:
            self._comm.reduce(at, at, count, kind, _operation(op, array), root, stream)

        return self._run(call, array)

    def reduce_scatter(self, array: Any, source: Any, op: ReduceOp) -> NCCLRequest:
        at, count, kind = _parts(array)

        def call(stream: int) -> None:
            self._comm.reduceScatter(source.data.ptr, at, count, kind, _operation(op, array), stream)

        return self._run(call, (array, source))

    def broadcast(self, array: Any, root: int) -> NCCLRequest:
        at, count, kind = _parts(array)
        return self._run(lambda stream: self._comm.broadcast(at, at, count, kind, root, stream), array)

    def all_gather(self, out: Any, array: Any) -> NCCLRequest:
        at, count, kind = _parts(array)
        return self._run(lambda stream: self._comm.allGather(at, out.data.ptr, count, kind, stream), (out, array))

    def gather(self, out: Any | None, array: Any, root: int) -> NCCLRequest:
        every = self.empty((self.size, *array.shape), array.dtype) if out is None else out
        return self.all_gather(every, array)

    def scatter(self, array: Any, source: Any | None, root: int) -> NCCLRequest:
        every = self.empty((self.size, *array.shape), array.dtype) if source is None else source

        def after() -> None:
            array[...] = every[self.rank]

        at, count, kind = _parts(every)
        request = self._run(lambda stream: self._comm.broadcast(at, at, count, kind, root, stream), (array, every))
        request.then(after)
        return request

    def all_to_all(self, out: Any, source: Any) -> NCCLRequest:
        step, kind = source.nbytes // self.size, _kind(source.dtype)
        count = source.size // self.size

        def call(stream: int) -> None:
            nccl = library()
            nccl.groupStart()
            for rank in range(self.size):
                self._comm.send(source.data.ptr + rank * step, count, kind, rank, stream)
                self._comm.recv(out.data.ptr + rank * step, count, kind, rank, stream)
            nccl.groupEnd()

        return self._run(call, (out, source))

    def barrier(self) -> NCCLRequest:
        return self.all_reduce(self.empty((1,), np.int32), ReduceOp.MAX)

    def send(self, array: Any, to: int, tag: int) -> NCCLRequest:
        at, count, kind = _parts(array)
        return self._run(lambda stream: self._comm.send(at, count, kind, to, stream), array)

    def receive(self, array: Any, source: int | None, tag: int) -> NCCLRequest:
        if source is None:
            raise ArgumentError("NCCL receives from a rank that is named", hint="recv(tensor, src=...)")
        at, count, kind = _parts(array)
        request = self._run(lambda stream: self._comm.recv(at, count, kind, source, stream), array)
        request.source = source
        return request

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return cuda.cupy().zeros(shape, dtype)

    def put(self, array: Any) -> Any:
        return cuda.cupy().asarray(array)

    def fetch(self, array: Any) -> Any:
        return cpu(array)  # and what went wrong meanwhile

    def split(self, ranks: tuple[int, ...]) -> NCCLBackend | None:
        inner = self._host.split(ranks)
        return None if inner is None else NCCLBackend(inner)

    def split_host(self, ranks: tuple[int, ...]) -> Any:
        """The MPI backend of some ranks, for tensors on the CPU."""
        return self._host.split(ranks)

    def control(self) -> Any:
        return self._host.control()

    def abort(self) -> None:
        """End operations that wait for a rank which does not come, so that the device is free again."""
        self._end("abort")

    def close(self) -> None:
        self._end("destroy")

    def _end(self, way: str) -> None:
        with self._lock:
            if self._open:
                self._open = False
                getattr(self._comm, way)()


def _parts(array: Any) -> tuple[int, int, int]:
    """Address, number of elements, and NCCL's number of their type."""
    return array.data.ptr, prod(array.shape), _kind(array.dtype)


def _kind(dtype: Any) -> int:
    name = TYPES.get(np.dtype(dtype).name)
    if name is None:
        raise DTypeError("NCCL has no such type", got=str(dtype), expected=", ".join(TYPES))
    return int(getattr(library(), f"NCCL_{name}"))


def _operation(op: ReduceOp, array: Any) -> int:
    name = OPS.get(op.value) if array.dtype != bool else BOOL_OPS.get(op.value, OPS.get(op.value))
    if name is None:
        raise ArgumentError(f"NCCL has no {op.name}", expected="SUM, AVG, PRODUCT, MIN or MAX")
    return int(getattr(library(), f"NCCL_{name}"))
