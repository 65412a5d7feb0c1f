"""DistributedDataParallel: one model, trained by several processes on a part of each batch each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ox import distributed as dist
from ox.core.mode import MODE, cannot_record, switch_mode
from ox.distributed.coalesced import broadcast_coalesced
from ox.distributed.world import resolve
from ox.errors import ArgumentError, GradientError, RecordError
from ox.nn.base.module import Module
from ox.nn.base.uninitialized import is_lazy
from ox.nn.parallel.join import Join
from ox.nn.parallel.model_check import check_same_on_all_ranks
from ox.nn.parallel.reducer import CommHook, Reducer

_groups: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def _ddp_group() -> Any:
    """The default group's ranks with an order of their own: where ranks use different parameters, their buckets go out
    at different moments, between other collectives of the model."""
    world = resolve(None)
    if world not in _groups:
        _groups[world] = dist.new_group(group_desc="DistributedDataParallel")
    return _groups[world]


class DistributedDataParallel(Module):
    """A module whose gradients are averaged over the ranks of a process group.
    `torch.nn.parallel.DistributedDataParallel`.

    Every rank makes the same model, wraps it, and makes its optimizer of ``ddp.parameters()``; from there on the loop
    is that of one process. Parameters and buffers become rank 0's at the beginning. While backward goes on, gradients
    are gathered in buckets, and a bucket's all_reduce starts when its last gradient is there; when ``backward``
    returns, every ``.grad`` is the mean of the ranks' gradients. It is the gradient of the whole batch where each
    rank's loss is a mean over equally many samples; for other batches see ``docs/distributed.md``.

    What a ``state_dict`` holds begins with ``module.``; the model itself is ``ddp.module``. Export that one.

    Args:
        module: floating parameters, of which one at least requires a gradient.
        device_ids: None, or a list of the one device that the module is on.
        output_device, dim: accepted for PyTorch's scripts; a module is on one device per process.
        broadcast_buffers: give every rank the buffers of rank 0 before a forward that follows one which trained.
        init_sync: compare the ranks' models and give every rank the values of rank 0; without it they must be the same.
        process_group: whose ranks train together; all by default.
        bucket_cap_mb: the size of a bucket, in MiB; the first one is of 1 MiB at most.
        find_unused_parameters: a parameter that a rank's loss does not reach counts as zero there; one that no rank
            reaches keeps its ``.grad``. Without it this is an error on every rank.
        check_reduction: of an older PyTorch.
        gradient_as_bucket_view: let ``.grad`` be views of the buckets: no second copy of the gradients, and the next
            backward overwrites gradients that user code keeps a reference to.
        static_graph: the same parameters are used each time; finds unused ones, too.

    Raises:
        DistributedError: there is no process group.
        ArgumentError: nothing to train, a lazy module, several devices; ranks' models differ; each rank's error shows
            which rank and parameter.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ) -> None:
        super().__init__()
        dist.get_rank(process_group)  # the error for a group that is not there
        named = [(name, p) for name, p in module.named_parameters()]
        self._refuse(named, device_ids, bucket_cap_mb)
        self.module, self.dim = module, dim
        self.process_group = _ddp_group() if process_group is None else process_group
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._join: Join | None = None
        if init_sync:
            everything = [*named, *module._dense_buffers()]
            check_same_on_all_ranks(everything, self.process_group, "DistributedDataParallel")
            broadcast_coalesced([x for _, x in everything], 0, self.process_group, "DistributedDataParallel")
        trained = [(name, p) for name, p in named if p.requires_grad]
        cap = max(1, int((25 if bucket_cap_mb is None else bucket_cap_mb) * (1 << 20)))
        finding = find_unused_parameters or static_graph
        self._cap = bucket_cap_mb
        self.__dict__["_buffer_versions"] = {}  # name to identity and version, after the last broadcast
        self.__dict__["reducer"] = Reducer(trained, self.process_group, cap, finding, gradient_as_bucket_view)

    def _refuse(self, named: list[Any], device_ids: Any, cap: float | None) -> None:
        if not any(p.requires_grad for _, p in named):
            raise ArgumentError(
                "DistributedDataParallel has nothing to average: no parameter requires a gradient",
                hint="the module itself",
            )
        lazy = next((name for name, p in named if is_lazy(p)), None)
        if lazy is not None:
            raise ArgumentError(f"'{lazy}' has no shape yet", hint="one forward of the module before")
        if device_ids is not None and len(device_ids) > 1:
            raise ArgumentError(
                "a process trains on one device",
                expected="device_ids None or of one device",
                got=str(device_ids),
                hint="ox launch with as many processes as devices",
            )
        if cap is not None and not cap > 0:
            raise ArgumentError("a bucket has a size", expected="bucket_cap_mb > 0", got=str(cap))

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedDataParallel:
        """A copy of the module, wrapped alike, in the same group."""
        made = memo[id(self)] = type(self)(
            deepcopy(self.module, memo),
            dim=self.dim,
            broadcast_buffers=self.broadcast_buffers,
            init_sync=False,
            process_group=self.process_group,
            bucket_cap_mb=self._cap,
            find_unused_parameters=self.find_unused_parameters,
            gradient_as_bucket_view=self.gradient_as_bucket_view,
            static_graph=self.static_graph,
        )
        made.training = self.training
        return made

    # -- calling -----------------------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        mode = MODE.get()
        if mode.recording is not None and mode.recording.guarded:
            cannot_record(RecordError("DistributedDataParallel works with other processes during the backward"))
        elif mode.recording is not None or self.reducer.in_backward:
            return self.module(*inputs, **kwargs)  # a file, or a checkpoint that computes again
        synchronizes = mode.grad and self.require_backward_grad_sync
        self._before(synchronizes)
        outputs = self.module(*inputs, **kwargs)
        if mode.grad:
            self.reducer.after_forward(synchronizes, outputs)
        return outputs

    def _before(self, synchronizes: bool) -> None:
        reducer: Reducer = self.reducer
        if reducer.broken is not None:
            raise GradientError(
                f"rank {reducer.rank}: a backward failed after its collectives had begun; the ranks no longer agree",
                got=f"the failure at {reducer.broken}",
                hint="end this rank; ox launch --max-restarts starts all of them again from a checkpoint",
            )
        reducer.check()
        reducer.check_others(self.module)
        self.require_forward_param_sync |= reducer.synchronized
        reducer.synchronized = False
        exchanges = self.broadcast_buffers and self.require_forward_param_sync
        buffers = list(self.module._dense_buffers()) if exchanges else []
        source = 0
        if self._join is not None:
            source = self._join.before_forward(synchronizes, bool(buffers))
        if buffers:
            self._broadcast_buffers(buffers, source)
        # after a broadcast until the next forward or backward that synchronizes, a rank's buffers are its own
        self.require_forward_param_sync = synchronizes or (self.require_forward_param_sync and not exchanges)

    def _broadcast_buffers(self, buffers: Sequence[tuple[str, Any]], source: int) -> None:
        """Give every rank the buffers of rank `source`. A buffer that has the same bits is not written, so that a graph
        may hold it. On a GPU the host waits for such a comparison: there, buffers that this rank has written since the
        last broadcast are written without one."""
        before = self._buffer_versions
        unwritten = {id(b) for name, b in buffers if before.get(name) == (id(b), b.version)}
        with switch_mode(grad=False):
            broadcast_coalesced(
                [b for _, b in buffers], source, self.process_group, "DistributedDataParallel",
                skip_equal=lambda b: isinstance(b.array, np.ndarray) or id(b) in unwritten,
            )  # fmt: skip
        self.__dict__["_buffer_versions"] = {name: (id(b), b.version) for name, b in buffers}

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Forwards inside, and their backwards, add up gradients on this rank only; the first backward of a forward
        after it averages the sum. `torch.nn.parallel.DistributedDataParallel.no_sync`.

        A backward of several forwards averages if one of them was outside."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextmanager
    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False
    ) -> Iterator[None]:
        """For ranks with different numbers of batches: one that leaves the block early takes part in what the others
        still do, with gradients of zero, until all are done; then all have the parameters of one that came last.
        `torch.nn.parallel.DistributedDataParallel.join`.

        Inside, each forward that trains is followed by one backward, and the ranks exchange nothing but what this
        module does: no SyncBatchNorm, no ZeroRedundancyOptimizer.

        Args:
            divide_by_initial_world_size: average over all ranks, those that are done counting zero; False averages over
                those that still work.
            enable: False makes this do nothing.
            throw_on_early_termination: an error on every rank as soon as one is done.
        """
        if not enable:
            yield
            return
        self._join = Join(self, divide_by_initial_world_size, throw_on_early_termination)
        try:
            yield
            self._join.join_others()
        finally:
            self._join = None
            self.reducer.divisor = self.reducer.world

    def register_comm_hook(self, state: Any, hook: CommHook) -> None:
        """Let ``hook(state, bucket)`` average a bucket: it returns an `ox.futures.Future` of the flat average, such as
        ``work.get_future().then(...)``. Those of `ox.distributed.algorithms.ddp_comm_hooks` do.
        `torch.nn.parallel.DistributedDataParallel.register_comm_hook`.

        Raises:
            ArgumentError: there is one already, or it cannot be called.
        """
        if self.reducer.hook is not None or not callable(hook):
            raise ArgumentError("register_comm_hook takes one function, once", got=f"hook {hook!r}")
        self.reducer.hook = (state, hook)


__all__ = ["DistributedDataParallel"]
