"""Collectives on NumPy arrays over MPI: mpi4py, with non-blocking operations throughout.

The only module that imports mpi4py. float16 and bfloat16 are reduced in float32 and rounded once: MPI's own sums would
round at every rank, and not every build of MPI has bfloat16.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ox.distributed.reduce_op import ReduceOp
from ox.dtypes import HALF_TYPES, bool_, float32
from ox.errors import DeviceError
from ox.installation import install_command

NOTE = 7  # the tag of notes between ranks


@cache
def library() -> Any:
    """`mpi4py.MPI`, imported but not started. Raises DeviceError where it is missing or finds no MPI."""
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False  # start() and end() call them explicitly
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DeviceError(
            "training on several processes needs mpi4py and an MPI", got=str(error), hint=install_command("mpi")
        ) from error
    return MPI


def check_pmi() -> None:
    """Raises DeviceError for an MPI that does not speak PMI, with which ranks start without mpiexec."""
    vendor = library().get_vendor()[0]
    if vendor == "Open MPI":
        raise DeviceError(
            f"{vendor} starts ranks only with its own mpiexec", expected="MPICH", hint=install_command("mpi")
        )


def start() -> MPIBackend:
    """Initializes MPI, unless it is initialized, and returns the backend of all ranks."""
    mpi = library()
    if not mpi.Is_initialized():
        mpi.Init_thread(mpi.THREAD_MULTIPLE)
        mpi.COMM_WORLD.Barrier()  # all ranks have mapped the shared memory
        _unlink_shared_memory()
    return MPIBackend(mpi.COMM_WORLD.Dup())


def _unlink_shared_memory() -> None:
    """Unlinks the shared memory of MPICH's ranks from /dev/shm after all have mapped it, so that the system frees it
    with the last rank. MPICH would do it in its finalize, which a killed rank does not reach."""
    with suppress(OSError):  # no such file system, no such memory, or another rank was first
        for name in set(re.findall(r"/dev/shm/mpich_shm_\w+$", Path("/proc/self/maps").read_text(), re.MULTILINE)):
            os.unlink(name)


def started() -> bool:
    """Whether MPI is initialized in this process; False if it is not installed."""
    if "mpi4py.MPI" not in sys.modules:
        return False
    return bool(library().Is_initialized() and not library().Is_finalized())


def end() -> None:
    library().Finalize()


def abort(code: int) -> None:
    """End all ranks at once."""
    library().COMM_WORLD.Abort(code)


class MPIRequest:
    """A request of MPI, references to its memory, and a function to call when it is complete."""

    def __init__(self, request: Any, keep: Any = None, after: Callable[[], None] | None = None) -> None:
        self._request, self._keep, self._after = request, keep, after
        self._status = library().Status()
        self._done = False

    def test(self) -> bool:
        if not self._done and self._request.Test(self._status):
            self._done = True
            if self._after is not None:
                self._after()
            self._keep = self._after = None
        return self._done

    @property
    def source(self) -> int:
        """The rank that sent the received message."""
        return int(self._status.Get_source())

    @property
    def count(self) -> int:
        """How many bytes were received."""
        return int(self._status.Get_count(library().BYTE))


class MPIBackend:
    """The operations of one communicator. See `ox.distributed.backend.Backend`."""

    name = "mpi"

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())

    @property
    def threads(self) -> bool:
        """Whether several threads may drive operations at once."""
        return bool(library().Query_thread() >= library().THREAD_MULTIPLE)

    # -- reductions ----------------------------------------------------------------------------------------------

    def all_reduce(self, array: Any, op: ReduceOp) -> MPIRequest:
        staged, buffer, after = self._staging(array, array, op)
        return MPIRequest(self.comm.Iallreduce(library().IN_PLACE, buffer, _operation(op, array)), staged, after)

    def reduce(self, array: Any, root: int, op: ReduceOp) -> MPIRequest:
        staged, buffer, after = self._staging(array, array, op)
        if self.rank == root:
            request = self.comm.Ireduce(library().IN_PLACE, buffer, _operation(op, array), root)
            return MPIRequest(request, staged, after)
        return MPIRequest(self.comm.Ireduce(buffer, None, _operation(op, array), root), staged)

    def reduce_scatter(self, array: Any, source: Any, op: ReduceOp) -> MPIRequest:
        staged, buffer, after = self._staging(array, np.empty_like(array), op)
        sent = source.astype(float32) if source.dtype in HALF_TYPES else source
        request = self.comm.Ireduce_scatter_block(_reduction_view(sent), buffer, _operation(op, array))

        def finish() -> None:
            if staged.dtype == array.dtype:
                array[...] = staged
            if after is not None:
                after()

        return MPIRequest(request, (staged, sent), finish)

    def _staging(self, array: Any, memory: Any, op: ReduceOp) -> tuple[Any, Any, Callable[[], None] | None]:
        """The buffer of a reduction, its view for MPI, and a function that copies the result into `array`."""
        staged = array.astype(float32) if array.dtype in HALF_TYPES else memory
        average = op is ReduceOp.AVG
        if staged is memory and not average:
            return staged, _reduction_view(staged), None

        def after() -> None:
            if average:
                np.divide(staged, staged.dtype.type(self.size), out=staged)
            if staged is not array:
                array[...] = staged

        return staged, _reduction_view(staged), after

    # -- copies --------------------------------------------------------------------------------------------------

    def broadcast(self, array: Any, root: int) -> MPIRequest:
        return MPIRequest(self.comm.Ibcast(_bytes(array), root), array)

    def all_gather(self, out: Any, array: Any) -> MPIRequest:
        return MPIRequest(self.comm.Iallgather(_bytes(array), _bytes(out)), (out, array))

    def gather(self, out: Any | None, array: Any, root: int) -> MPIRequest:
        received = None if out is None else _bytes(out)
        return MPIRequest(self.comm.Igather(_bytes(array), received, root), (out, array))

    def scatter(self, array: Any, source: Any | None, root: int) -> MPIRequest:
        sent = None if source is None else _bytes(source)
        return MPIRequest(self.comm.Iscatter(sent, _bytes(array), root), (array, source))

    def all_to_all(self, out: Any, source: Any) -> MPIRequest:
        return MPIRequest(self.comm.Ialltoall(_bytes(source), _bytes(out)), (out, source))

    def barrier(self) -> MPIRequest:
        return MPIRequest(self.comm.Ibarrier())

    def send(self, array: Any, to: int, tag: int) -> MPIRequest:
        return MPIRequest(self.comm.Isend(_bytes(array), to, tag), array)

    def receive(self, array: Any, source: int | None, tag: int) -> MPIRequest:
        source = library().ANY_SOURCE if source is None else source
        made = MPIRequest(self.comm.Irecv(_bytes(array), source, tag), array, lambda: _check_size(made, array.nbytes))
        return made

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return np.empty(shape, dtype)

    def put(self, array: Any) -> Any:
        return array

    def fetch(self, array: Any) -> Any:
        return array

    # -- groups --------------------------------------------------------------------------------------------------

    def split(self, ranks: tuple[int, ...]) -> MPIBackend | None:
        inside = self.rank in ranks
        comm = self.comm.Split(0 if inside else library().UNDEFINED, ranks.index(self.rank) if inside else 0)
        return MPIBackend(comm) if inside else None

    def control(self) -> MPIBackend:
        """A second communicator of the same ranks, for checks and notes."""
        return MPIBackend(self.comm.Dup())

    def close(self) -> None:
        self.comm.Free()

    # -- notes ---------------------------------------------------------------------------------------------------

    def write(self, note: bytes, to: int) -> MPIRequest:
        """Sends a short note, which the other rank reads with `read`."""
        sent = np.frombuffer(note, np.uint8)
        return MPIRequest(self.comm.Isend(sent, to, NOTE), sent)

    def read(self) -> list[tuple[int, bytes]]:
        """The notes that have arrived, each with the rank of its sender."""
        mpi, notes = library(), []
        status = mpi.Status()
        while (message := self.comm.Improbe(mpi.ANY_SOURCE, NOTE, status)) is not None:
            buffer = np.empty(status.Get_count(mpi.BYTE), np.uint8)
            message.Recv(buffer)
            notes.append((int(status.Get_source()), buffer.tobytes()))
        return notes


def _check_size(request: MPIRequest, size: int) -> None:
    if request.count != size:
        raise ValueError(f"a message of {request.count} bytes came where {size} were expected")


def _operation(op: ReduceOp, array: Any) -> Any:
    mpi = library()
    if array.dtype == bool_:  # as bytes of 0 and 1
        return {"sum": mpi.MAX, "product": mpi.MIN}.get(op.value) or getattr(mpi, op.name)
    return {"avg": mpi.SUM, "product": mpi.PROD}.get(op.value) or getattr(mpi, op.name)


def _reduction_view(array: Any) -> Any:
    """A view of an array in a type that MPI can reduce."""
    return array.view(np.uint8) if array.dtype == bool_ else array


def _bytes(array: Any) -> Any:
    """A view of an array as bytes, for copies."""
    return array.reshape(-1).view(np.uint8)


def final_barrier() -> MPIRequest:
    """The barrier of all ranks at the end of the program."""
    return MPIRequest(library().COMM_WORLD.Ibarrier())
