"""Messages from one rank to another. `torch.distributed`'s `send`, `recv` and what is around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ox.distributed.collectives import described, input_array, output_array
from ox.distributed.work import Work
from ox.distributed.world import get_group_rank, resolve
from ox.errors import ArgumentError
from ox.tensor import Tensor
from ox.where import users_line


def isend(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> Work:
    """Begin to send `tensor` to rank `dst`; it is not to be changed before the Work is done. `torch.distributed.isend`.

    Raises:
        ArgumentError: a rank outside the group, or this one.
    """
    chosen = resolve(group)
    array = input_array(chosen, tensor, "send")
    to = _other(chosen, dst, "send")
    text = f"send {described(array)} to rank {dst}"
    return chosen.message(text, lambda: chosen.engine.send(array, to, tag), None, to)


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> Work:
    """Begin to receive into `tensor`, from rank `src` or whoever comes first. `torch.distributed.irecv`."""
    chosen = resolve(group)
    array, back = output_array(chosen, tensor, "recv")
    source = None if src is None else _other(chosen, src, "recv")
    text = f"recv {described(array)} from {'any rank' if src is None else f'rank {src}'}"
    return chosen.message(text, lambda: chosen.engine.receive(array, source, tag), back, source)


def send(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> None:
    """Send `tensor` to rank `dst`. `torch.distributed.send`.

    Raises:
        DistributedError: it is not received in time.
    """
    isend(tensor, dst, group, tag).wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> int:
    """Receive into `tensor`, from rank `src` or whoever comes first; returns whose message it was.

    `torch.distributed.recv`.

    Raises:
        DistributedError: nothing came in time, or a message of another size.
    """
    work = irecv(tensor, src, group, tag)
    work.wait()
    return work.source_rank()


@dataclass
class P2POp:
    """One message of a batch. `torch.distributed.P2POp`: `op` is `isend` or `irecv`."""

    op: Callable[..., Work]
    tensor: Tensor
    peer: int
    group: Any = None
    tag: int = 0


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Begin several messages at once. `torch.distributed.batch_isend_irecv`."""
    for each in p2p_op_list:
        if not isinstance(each, P2POp) or each.op not in (isend, irecv):
            raise ArgumentError("batch_isend_irecv takes P2POp of isend and irecv", where=users_line(2), got=repr(each))
    return [each.op(each.tensor, each.peer, each.group, each.tag) for each in p2p_op_list]


def monitored_barrier(
    group: Any = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier with a time limit of its own; every barrier here names the ranks that do not come.

    `torch.distributed.monitored_barrier`.
    """
    chosen = resolve(group)
    work = chosen.start("monitored_barrier", chosen.engine.barrier, None, True)
    assert work is not None
    work.wait(timeout)


def _other(group: Any, rank: int, name: str) -> int:
    inside = get_group_rank(group, rank)
    if inside == group.rank():
        raise ArgumentError(f"{name} is between two ranks", where=users_line(3), got=f"rank {rank}, which is this one")
    return inside
