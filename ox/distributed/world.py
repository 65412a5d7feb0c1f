"""The process groups of this process: creation, look-up and exit. `torch.distributed`'s functions of these names."""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from ox.clock import SYSTEM
from ox.distributed import init
from ox.distributed.process_group import ProcessGroup
from ox.distributed.work import PROGRESS_THREAD, seconds
from ox.errors import ArgumentError, DistributedError, OxError, RecordError

P = ParamSpec("P")
R = TypeVar("R")
DEFAULT_TIMEOUT = timedelta(minutes=30)  # PyTorch's
GRACE = 1.0  # seconds before MPI ends all ranks, so that the others can print their own error

_groups: list[ProcessGroup] = []  # the first is the default group, of all ranks


class GroupMember:
    """`torch.distributed.GroupMember`: `new_group` returns `NON_GROUP_MEMBER` to ranks outside the group."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = object()


def is_initialized() -> bool:
    """Whether `init_process_group` was called. `torch.distributed.is_initialized`."""
    return bool(_groups)


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Join the other ranks. `torch.distributed.init_process_group`.

    Args:
        backend: ``"mpi"`` on CPUs, ``"nccl"`` on GPUs; by default what fits the machine. ``"gloo"``, PyTorch's for
            CPUs, is taken as ``"mpi"``.
        init_method: ``"env://"`` or None: rank and world size come from the launcher. Ranks that mpiexec did not start
            meet at MASTER_ADDR and MASTER_PORT.
        timeout: the longest wait of any operation, a timedelta or seconds; default 30 minutes. The default for the
            start of all ranks is 2 minutes.
        world_size, rank: if given, they must be those of the launcher; needed where no launcher tells them.
        store, group_name, pg_options, device_id: as in PyTorch's signature; `device_id` selects the GPU for NCCL.

    Raises:
        DistributedError: a rank did not come in time or ended; ranks differ in their number, script or version of ox,
            or two have one number; the port at rank 0 is in use; another token.
        ArgumentError: called twice, an unknown backend, a negative timeout, no MASTER_ADDR and MASTER_PORT where they
            are needed, or a RANK, WORLD_SIZE or OX_HEARTBEAT_TIMEOUT that cannot be.
        DeviceError: mpi4py or NCCL is missing.
    """
    if _groups:
        raise ArgumentError("init_process_group was called before",
                            hint="destroy_process_group() first; is_initialized() tells")  # fmt: skip
    if init_method not in (None, "env://") or store is not None:
        raise ArgumentError(
            "ranks find each other by their launcher", expected="init_method None or 'env://'",
            got=repr(init_method if store is None else store), hint="ox launch, mpiexec or srun",
        )  # fmt: skip
    world = init.create_backend(backend, None if timeout is None else seconds(timeout), device_id, rank, world_size)
    for name, argument, actual in (("world_size", world_size, world.size), ("rank", rank, world.rank)):
        if argument not in (-1, actual):
            raise ArgumentError(f"{name} is not what the launcher says", expected=str(actual),
                                got=str(argument), hint=f"leave {name} out")  # fmt: skip
    limit = init.default_timeout(DEFAULT_TIMEOUT) if timeout is None else seconds(timeout)
    _groups.append(ProcessGroup(world, range(world.size), limit, group_name or "the default group", SYSTEM))
    GroupMember.WORLD = _groups[0]
    if world.size > 1:
        _register_exit_handlers()


def destroy_process_group(group: Any = None) -> None:
    """Leave a group, or all of them, together with its other ranks. `torch.distributed.destroy_process_group`."""
    chosen = [resolve(group)] if group is not None and group is not GroupMember.WORLD else list(reversed(_groups))
    if not _groups:
        raise ArgumentError("there is no process group to destroy")
    for work in PROGRESS_THREAD.unfinished():
        if not work._group.is_broken:
            work.wait()
    for each in chosen:
        if not each.is_broken:
            each.failed_calls = 0  # no call of this group follows
            each.start("destroy_process_group", each.backend.barrier, on_host=True)
            each.close()
        _groups.remove(each)
    if not _groups:
        GroupMember.WORLD = None


def new_group(
    ranks: Sequence[int] | None = None, timeout: timedelta | float | None = None, backend: str | None = None,
    pg_options: Any = None, use_local_synchronization: bool = False, group_desc: str | None = None,
) -> Any:  # fmt: skip
    """A group of some ranks; all ranks of the program call this, those outside too. `torch.distributed.new_group`.

    Returns the group, and on ranks outside it `GroupMember.NON_GROUP_MEMBER`.

    Args:
        backend: "gloo" or "mpi" for tensors on the CPU, also where the default group is NCCL's; None: the backend of
            the default group.

    Raises:
        ArgumentError: a rank that does not exist, or one given twice; an unknown backend, or "nccl" where the default
            group is not.
    """
    world = resolve(None)
    chosen = tuple(sorted(range(world.size()) if ranks is None else ranks))
    if len(set(chosen)) != len(chosen) or not chosen or chosen[0] < 0 or chosen[-1] >= world.size():
        raise ArgumentError("new_group takes ranks, each once",
                            expected=f"0 to {world.size() - 1}", got=str(list(ranks or ())))  # fmt: skip
    wanted = world.backend.name if backend is None else init.known_backend(backend)
    if wanted is None or (wanted, world.backend.name) == ("nccl", "mpi"):
        hint = 'init_process_group("nccl"), which also has groups of "gloo"'
        raise ArgumentError(f"new_group has no backend {backend!r} here", expected="gloo or mpi" if wanted else
                            "gloo, mpi or nccl", got=f"a default group of {world.backend.name}", hint=hint)  # fmt: skip
    world.start(f"new_group {list(chosen)}", world.backend.barrier)
    split = world.backend.split if wanted == world.backend.name else world.backend.split_host
    inner = split(chosen)
    if inner is None:
        return GroupMember.NON_GROUP_MEMBER
    limit = world.timeout if timeout is None else seconds(timeout)
    group = ProcessGroup(inner, chosen, limit, group_desc or f"group {list(chosen)}", world.clock)
    _groups.append(group)
    return group


def resolve(group: Any) -> ProcessGroup:
    """The group of an argument; None is the default group. Raises DistributedError if there is no group."""
    if not _groups:
        raise DistributedError("there is no process group yet", hint="ox.distributed.init_process_group()")
    chosen = _groups[0] if group is None else group
    if chosen is GroupMember.NON_GROUP_MEMBER:
        raise ArgumentError("this rank is not in that group", hint="ask get_rank(group) >= 0 first")
    if chosen not in _groups:
        raise ArgumentError("no process group of this process", got=repr(group))
    return chosen


def counts_failed_calls(collective: Callable[P, R]) -> Callable[P, R]:
    """Count the calls of `collective` that raise before they begin. Ranks compare these numbers with each collective:
    where a rank catches such an error and goes on, the others still wait in that call, and would take its next one for
    it."""
    position = list(inspect.signature(collective).parameters).index("group")

    @functools.wraps(collective)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        started = ProcessGroup.started
        try:
            return collective(*args, **kwargs)
        except (
            RecordError,
            DistributedError,
        ):  # a recording begins anew without it; a failed operation closes its group
            raise
        except Exception:
            if started == ProcessGroup.started:
                group = kwargs.get("group", args[position] if len(args) > position else None)
                with suppress(OxError):
                    resolve(group).failed_calls += 1
            raise

    return call


def get_rank(group: Any = None) -> int:
    """This process's rank in a group, by default the whole program; -1 outside it. `torch.distributed.get_rank`."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else resolve(group).rank()


def get_world_size(group: Any = None) -> int:
    """How many ranks a group has; -1 outside it. `torch.distributed.get_world_size`."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else resolve(group).size()


def get_backend(group: Any = None) -> str:
    """``"mpi"`` or ``"nccl"``. `torch.distributed.get_backend`."""
    return str(resolve(group).backend.name)


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The global ranks of a group, in its order."""
    return list(resolve(group).ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank in the program of a rank in a group."""
    return get_process_group_ranks(group)[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """The rank in a group of a rank in the program. Raises ArgumentError for one outside it."""
    ranks = get_process_group_ranks(group)
    if global_rank not in ranks:
        raise ArgumentError(f"rank {global_rank} is not in the group", expected=f"one of {ranks}")
    return ranks.index(global_rank)


# -- the end -----------------------------------------------------------------------------------------------------


def abort(code: int = 1) -> None:
    """End all ranks of the program at once with this exit code."""
    from ox.distributed import mpi

    sys.stdout.flush()
    sys.stderr.flush()
    init.tell_launcher(ended=code, text=f"exit code {code}")  # MPI may end this process with another code
    if mpi.started():
        mpi.abort(code)
    os._exit(code)  # torchrun ends the others


_registered: list[bool] = []


def _register_exit_handlers() -> None:
    """Registers what happens when this rank ends: an uncaught exception ends all ranks; at a normal exit the rank tells
    the others and waits for them before MPI is finalized."""
    if _registered:
        return
    _registered.append(True)
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        before(kind, error, trace)
        if is_initialized():
            _abort_after_error()

    sys.excepthook = hook
    atexit.register(_at_exit)


def _abort_after_error() -> None:
    sys.stderr.flush()
    _notify_exit("ended with an error")
    SYSTEM.sleep(GRACE)  # the others receive the note and print in which operation they wait
    abort(1)


def _notify_exit(text: str) -> None:
    """Tells the other ranks of each group that this rank has ended; they may wait in any of the groups."""
    for group in _groups:
        if group.monitor is not None:
            group.monitor.send("left", 0, text)


def _at_exit() -> None:
    from ox.distributed import mpi, rendezvous

    if not mpi.started():
        return
    world = _groups[0] if _groups else None
    if world is not None and (world.is_broken or any(group.is_broken for group in _groups)):
        failure = next(group.failure for group in _groups if group.failure is not None)
        who = f"ox: rank {world.backend.rank} ends with exit code 1"
        print(f"{who}, for a process group of it is closed: {failure} failed", file=sys.stderr)
        _abort_after_error()
    _notify_exit("ended without destroy_process_group()")
    limit = DEFAULT_TIMEOUT.total_seconds() if world is None else world.timeout
    request, until = mpi.final_barrier(), SYSTEM.now() + limit
    while not request.test():
        if SYSTEM.now() > until:
            abort(1)
        SYSTEM.sleep(0.002)
    rendezvous.leave()
    mpi.end()


__all__ = [
    "GroupMember", "abort", "destroy_process_group", "get_backend", "get_global_rank", "get_group_rank",
    "get_process_group_ranks", "get_rank", "get_world_size", "init_process_group", "is_initialized", "new_group",
    "resolve",
]  # fmt: skip
