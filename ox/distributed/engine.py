"""What a group asks of the library that moves its bytes: MPI on CPUs, NCCL on GPUs.

An engine sees contiguous arrays and ranks of its own group, starts operations and never waits. Who waits, for how long,
and what is said when nobody comes is the same for all of them: `ox.distributed.work`.
"""

from __future__ import annotations

from typing import Any, Protocol

from ox.distributed.reduce_op import ReduceOp


class Request(Protocol):
    """An operation on its way."""

    def test(self) -> bool:
        """Whether it is done. Asking is also what drives it forward."""
        ...


class Engine(Protocol):
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
        """An array where this engine's arrays live."""
        ...

    def put(self, array: Any) -> Any:
        """A NumPy array, as an array of this engine."""
        ...

    def fetch(self, array: Any) -> Any:
        """An array of this engine, as a NumPy array."""
        ...

    def split(self, ranks: tuple[int, ...]) -> Engine | None:
        """An engine for these ranks; None on the others. All ranks of this engine ask together."""
        ...

    def close(self) -> None: ...
