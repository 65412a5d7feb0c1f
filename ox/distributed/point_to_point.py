"""Messages from one rank to another: `send`, `recv` and related functions of `torch.distributed`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ox.distributed.collectives import describe, input_array, output_array
from ox.distributed.work import Work
from ox.distributed.world import get_group_rank, resolve
from ox.errors import ArgumentError
from ox.tensors.tensor import Tensor


def isend(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> Work:
    """Starts to send `tensor` to rank `dst`. Do not change it before the Work is done. `torch.distributed.isend`.

    Raises:
        ArgumentError: a rank outside the group, or this one.
    """
    chosen = resolve(group)
    array = input_array(chosen, tensor, "send")
    to = _other(chosen, dst, "send")
    text = f"send {describe(array)} to rank {dst}"
    return chosen.message(text, lambda: chosen.backend.send(array, to, tag), None, to)


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> Work:
    """Starts to receive into `tensor`, from rank `src`, or from any rank. `torch.distributed.irecv`."""
    chosen = resolve(group)
    array, back = output_array(chosen, tensor, "recv")
    source = None if src is None else _other(chosen, src, "recv")
    text = f"recv {describe(array)} from {'any rank' if src is None else f'rank {src}'}"
    return chosen.message(text, lambda: chosen.backend.receive(array, source, tag), back, source, [tensor])


def send(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> None:
    """Send `tensor` to rank `dst`. `torch.distributed.send`.

    Raises:
        DistributedError: it is not received in time.
    """
    isend(tensor, dst, group, tag).wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> int:
    """Receives into `tensor`, from rank `src`, or from any rank. Returns the rank of the sender.

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
            raise ArgumentError("batch_isend_irecv takes P2POp of isend and irecv", got=repr(each))
    return [each.op(each.tensor, each.peer, each.group, each.tag) for each in p2p_op_list]


def monitored_barrier(
    group: Any = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier with its own timeout. Every barrier of ox names the missing ranks.

    `torch.distributed.monitored_barrier`.
    """
    chosen = resolve(group)
    work = chosen.start("monitored_barrier", chosen.backend.barrier, None, True)
    assert work is not None
    work.wait(timeout)


def _other(group: Any, rank: int, name: str) -> int:
    inside = get_group_rank(group, rank)
    if inside == group.rank():
        raise ArgumentError(f"{name} is between two ranks", got=f"rank {rank}, which is this one")
    return inside
