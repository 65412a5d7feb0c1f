"""The interface of a communication backend: MPI on CPUs, NCCL on GPUs.

A backend gets contiguous arrays and ranks of its own group. It starts operations and never waits. Waiting, timeouts and
their errors are the same for all backends: `ox.distributed.work`.
"""

from __future__ import annotations

from typing import Any, Protocol

from ox.distributed.reduce_op import ReduceOp


class Request(Protocol):
    """A non-blocking operation."""

    def test(self) -> bool:
        """Whether the operation is complete. MPI makes progress only inside such calls."""
        ...


class Backend(Protocol):
    """The operations on arrays of one group. `out` has the ranks in its first dimension; `root` is a group rank."""

    name: str
    rank: int
    size: int

    def all_reduce(self, array: Any, op: ReduceOp) -> Request: ...
    def reduce(self, array: Any, root: int, op: ReduceOp) -> Request: ...
    def broadcast(self, array: Any, root: int) -> Request: ...
    def all_gather(self, out: Any, array: Any) -> Request: ...
    def gather(self, out: Any | None, array: Any, root: int) -> Request: ...
    def scatter(self, array: Any, source: Any | None, root: int) -> Request: ...
    def reduce_scatter(self, array: Any, source: Any, op: ReduceOp) -> Request: ...
    def all_to_all(self, out: Any, source: Any) -> Request: ...
    def barrier(self) -> Request: ...
    def send(self, array: Any, to: int, tag: int) -> Request: ...
    def receive(self, array: Any, source: int | None, tag: int) -> Request: ...

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array in the memory of this backend: NumPy or CuPy."""
        ...

    def put(self, array: Any) -> Any:
        """A NumPy array as an array of this backend."""
        ...

    def fetch(self, array: Any) -> Any:
        """An array of this backend as a NumPy array."""
        ...

    def split(self, ranks: tuple[int, ...]) -> Backend | None:
        """A backend for these ranks; None on the others. All ranks call it together."""
        ...

    def close(self) -> None: ...
