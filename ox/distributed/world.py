"""The groups of this process: how they begin and end."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from ox.distributed import start
from ox.distributed.process_group import ProcessGroup
from ox.distributed.work import HELPER, seconds
from ox.errors import ArgumentError, DistributedError
from ox.where import users_line

DEFAULT_TIMEOUT = timedelta(minutes=30)  # PyTorch's
GRACE = 1.0  # seconds that the other ranks have for their own error before all end

_groups: list[ProcessGroup] = []  # the first is everybody's


class GroupMember:
    """`torch.distributed.GroupMember`: what `new_group` gives to those outside."""

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
        init_method: ``"env://"`` or None: who the ranks are is always known from who started them.
        timeout: how long any operation waits at most, a timedelta or seconds; default 30 minutes. For the ranks to
            come together 2 minutes by default.
        world_size, rank: checked against what the launcher says, where given.
        store, group_name, pg_options, device_id: for PyTorch's signature; `device_id` chooses the GPU for NCCL.

    Raises:
        DistributedError: a rank did not come in time or ended, the processes were not started by MPI.
        ArgumentError: called twice, or an unknown backend.
        DeviceError: mpi4py or NCCL is missing.
    """
    if _groups:
        raise ArgumentError("init_process_group was called before", where=users_line(2),
                            hint="destroy_process_group() first; is_initialized() tells")  # fmt: skip
    if init_method not in (None, "env://") or store is not None:
        raise ArgumentError(
            "ranks find each other by their launcher", where=users_line(2), expected="init_method None or 'env://'",
            got=repr(init_method if store is None else store), hint="ox launch, mpiexec or srun",
        )  # fmt: skip
    engine = start.engine(backend, None if timeout is None else seconds(timeout), device_id)
    for name, given, is_so in (("world_size", world_size, engine.size), ("rank", rank, engine.rank)):
        if given not in (-1, is_so):
            raise ArgumentError(f"{name} is not what the launcher says", where=users_line(2), expected=str(is_so),
                                got=str(given), hint=f"leave {name} out")  # fmt: skip
    limit = start.default_timeout(DEFAULT_TIMEOUT) if timeout is None else seconds(timeout)
    _groups.append(ProcessGroup(engine, range(engine.size), limit, group_name or "the default group"))
    GroupMember.WORLD = _groups[0]
    if engine.size > 1:
        _watch_the_end()


def destroy_process_group(group: Any = None) -> None:
    """Leave a group, or all of them, together with its other ranks. `torch.distributed.destroy_process_group`."""
    chosen = [resolve(group)] if group is not None and group is not GroupMember.WORLD else list(reversed(_groups))
    if not _groups:
        raise ArgumentError("there is no process group to destroy", where=users_line(2))
    for work in HELPER.rest():
        if not work._group.is_broken:
            work.wait()
    for each in chosen:
        if not each.is_broken:
            each.start("destroy_process_group", each.engine.barrier)
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

    Raises:
        ArgumentError: a rank that does not exist, or one given twice.
    """
    world = resolve(None)
    chosen = tuple(sorted(range(world.size()) if ranks is None else ranks))
    if len(set(chosen)) != len(chosen) or not chosen or chosen[0] < 0 or chosen[-1] >= world.size():
        raise ArgumentError("new_group takes ranks, each once", where=users_line(2),
                            expected=f"0 to {world.size() - 1}", got=str(list(ranks or ())))  # fmt: skip
    world.start(f"new_group {list(chosen)}", world.engine.barrier)
    engine = world.engine.split(chosen)
    if engine is None:
        return GroupMember.NON_GROUP_MEMBER
    limit = world.timeout if timeout is None else seconds(timeout)
    group = ProcessGroup(engine, chosen, limit, group_desc or f"group {list(chosen)}")
    _groups.append(group)
    return group


def resolve(group: Any) -> ProcessGroup:
    """The group that is meant; None is everybody's. Raises DistributedError where there is none."""
    if not _groups:
        raise DistributedError("there is no process group yet", where=users_line(3),
                               hint="ox.distributed.init_process_group()")  # fmt: skip
    chosen = _groups[0] if group is None else group
    if chosen is GroupMember.NON_GROUP_MEMBER:
        raise ArgumentError("this rank is not in that group", where=users_line(3),
                            hint="ask get_rank(group) >= 0 first")  # fmt: skip
    if chosen not in _groups:
        raise ArgumentError("no process group of this process", where=users_line(3), got=repr(group))
    return chosen


def get_rank(group: Any = None) -> int:
    """This process's rank in a group, by default the whole program; -1 outside it. `torch.distributed.get_rank`."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else resolve(group).rank()


def get_world_size(group: Any = None) -> int:
    """How many ranks a group has; -1 outside it. `torch.distributed.get_world_size`."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else resolve(group).size()


def get_backend(group: Any = None) -> str:
    """``"mpi"`` or ``"nccl"``. `torch.distributed.get_backend`."""
    return str(resolve(group).engine.name)


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
        raise ArgumentError(f"rank {global_rank} is not in the group", where=users_line(2), expected=f"one of {ranks}")
    return ranks.index(global_rank)


# -- the end -----------------------------------------------------------------------------------------------------


def abort(code: int = 1) -> None:
    """End all ranks of the program at once with this exit code."""
    from ox.distributed import mpi

    sys.stdout.flush()
    sys.stderr.flush()
    if start.FOLDER in os.environ:  # MPI ends this process before it can speak
        start.leave(Path(os.environ[start.FOLDER]), f"ended.{start.launch().rank}", f"exit code {code}")
    if mpi.started():
        mpi.abort(code)
    os._exit(code)  # torchrun ends the others


_watching: list[bool] = []


def _watch_the_end() -> None:
    """A rank that dies of an exception ends all; one that ends says so, and MPI ends when all do."""
    if _watching:
        return
    _watching.append(True)
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        before(kind, error, trace)
        if is_initialized():
            _fail()

    sys.excepthook = hook
    atexit.register(_end)


def _fail() -> None:
    sys.stderr.flush()
    _say("ended with an error")
    sleep(GRACE)  # the others hear of it, and say what they wait for
    abort(1)


def _say(text: str) -> None:
    """Tell every group that this rank has left it: the others may wait in any."""
    for group in _groups:
        if group.monitor is not None:
            group.monitor.tell("left", 0, text)


def _end() -> None:
    from ox.distributed import mpi

    if not mpi.started():
        return
    world = _groups[0] if _groups else None
    if world is not None and (world.is_broken or any(group.is_broken for group in _groups)):
        failure = next(group.failure for group in _groups if group.failure is not None)
        who = f"ox: rank {world.engine.rank} ends with exit code 1"
        print(f"{who}, for a process group of it is closed: {failure} failed", file=sys.stderr)
        _fail()
    _say("ended without destroy_process_group()")
    limit = DEFAULT_TIMEOUT.total_seconds() if world is None else world.timeout
    request, until = mpi.farewell(), monotonic() + limit
    while not request.test():
        if monotonic() > until:
            abort(1)
        sleep(0.002)
    mpi.end()


__all__ = [
    "GroupMember", "abort", "destroy_process_group", "get_backend", "get_global_rank", "get_group_rank",
    "get_process_group_ranks", "get_rank", "get_world_size", "init_process_group", "is_initialized", "new_group",
    "resolve",
]  # fmt: skip
