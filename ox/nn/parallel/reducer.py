"""Averages gradients over ranks while backward goes on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ox import distributed as dist
from ox.autograd.grad_ready import add_observer
from ox.call_site import users_line
from ox.core.operator import make_tensor
from ox.dtypes import uint8
from ox.errors import ArgumentError, GradientError
from ox.nn.parallel.bucket import FIRST, Bucket, Flags, assign_buckets
from ox.profiler import collection
from ox.tensors.tensor import Tensor

CommHook = Callable[[Any, "GradBucket"], Any]


class GradBucket:
    """What a communication hook gets. `torch.distributed.GradBucket`."""

    def __init__(self, bucket: Bucket, parameters: Sequence[Tensor], last: bool, process_group: Any) -> None:
        self._bucket, self._parameters, self._last = bucket, parameters, last
        self.process_group = process_group

    def index(self) -> int:
        """The bucket's number, in the order in which buckets go out."""
        return self._bucket.number

    def buffer(self) -> Tensor:
        """Its gradients, flat, not yet divided by the number of ranks; one more element is behind them."""
        return self._bucket.flat

    def gradients(self) -> list[Tensor]:
        """Views of the buffer, one a parameter."""
        return list(self._bucket.gradients)

    def parameters(self) -> list[Tensor]:
        return [self._parameters[i] for i in self._bucket.indices]

    def is_last(self) -> bool:
        return self._last

    def set_buffer(self, tensor: Tensor) -> None:
        """Replace what the buffer holds."""
        self._bucket.flat.array[...] = tensor.array


class Reducer:
    """Follows every backward into `parameters`, and starts a bucket's all_reduce when its last gradient is there.

    Buckets go out in one order on every rank: one that is ready early waits for those before it. Where a rank finds at
    the start of a backward that the loss cannot reach a parameter, it says so in its bucket, and at the end all ranks
    raise the same error; with `find_unused` such a parameter counts as zero instead.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, Tensor]],
        group: Any,
        cap: int,
        find_unused: bool,
        as_view: bool,
    ) -> None:
        self.names, self.parameters = [name for name, _ in named], [p for _, p in named]
        self.group, self.cap, self.find_unused, self.as_view = group, cap, find_unused, as_view
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.divisor = self.world  # what a sum of gradients is divided by
        self.enabled = False  # whether backward reduces, as the last forward decided
        self.broken: str | None = None
        self.hook: tuple[Any, CommHook] | None = None
        self._depth = 0
        self._shadowing = False
        self._earlier: tuple[Flags, list[int]] | None = None  # of the last backward, on a GPU
        self._order: list[int] | None = []  # of a backward, until buckets follow it
        # the last layers' gradients come first
        self._build(range(len(self.parameters))[::-1])
        self.leaves = [p.node for p in self.parameters]
        self._number = {leaf: i for i, leaf in enumerate(self.leaves)}
        add_observer(self)
        # the parameters must not keep what a model was wrapped in before
        self_reference = weakref.ref(self)
        handles = [
            p.register_post_accumulate_grad_hook(_Hook(self_reference, i)) for i, p in enumerate(self.parameters)
        ]
        weakref.finalize(self, _remove, handles)

    def _build(self, order: Sequence[int]) -> None:
        self.buckets = assign_buckets(self.parameters, order, min(FIRST, self.cap), self.cap)
        self._place = {i: (bucket, g) for bucket in self.buckets for i, g in bucket.slots()}

    def check(self) -> None:
        """Raise an ArgumentError if a parameter is not what it was when the buckets were made."""
        for i, (p, leaf) in enumerate(zip(self.parameters, self.leaves, strict=True)):
            place = self._place[i][1].array
            if p.node is not leaf or p.array.dtype != place.dtype or p.static_shape != place.shape:
                what = "requires_grad" if p.node is not leaf else "the type or shape"
                raise ArgumentError(
                    f"{what} of '{self.names[i]}' was changed after DistributedDataParallel was made",
                    hint="change the module first, or wrap it again on every rank",
                )

    def check_others(self, module: Any) -> None:
        """Raise an ArgumentError if `module` trains a parameter that was frozen, or was not there, at the beginning:
        its gradient would not be averaged."""
        known = {id(p) for p in self.parameters}
        for name, p in module.named_parameters():
            if p.requires_grad and id(p) not in known:
                what = "was replaced" if name in self.names else "began to be trained"
                raise ArgumentError(
                    f"'{name}' {what} after DistributedDataParallel was made",
                    hint="change the module first, or wrap it again on every rank",
                )

    # -- a backward ----------------------------------------------------------------------------------------------

    def on_start(self, leaves: Collection[Any], create_graph: bool) -> None:
        reached = {self._number[leaf] for leaf in leaves if leaf in self._number}
        if self._depth:
            self._depth += 1  # a backward inside one of ours: what it brings is waited for at the end
        elif self.enabled and reached:
            if create_graph:
                raise GradientError(
                    "backward(create_graph=True) under DistributedDataParallel: an exchange of ranks has no history",
                    hint="ox.autograd.grad(..., create_graph=True) in the loss, then loss.backward()",
                )
            self.begin(reached)

    def begin(self, reached: Collection[int]) -> None:
        """Open the buckets. Parameters that are not `reached` count as ready."""
        self._raise_earlier()
        self._depth, self._next = 1, 0
        self._missing: list[int] = []
        self._has_gradient = [False] * len(self.parameters)
        if self._order is not None:
            self._order = []
        for bucket in self.buckets:
            bucket.waiting = len(bucket.indices)
            bucket.flag[...] = 0
        for i in range(len(self.parameters)):
            if i not in reached:
                self._mark_unused(i)

    def _mark_unused(self, i: int) -> None:
        if not self.find_unused:
            self._missing.append(i)
        if not self._shadowing:
            self._place[i][0].flag[...] = 1
        self._mark_ready(i)

    def gradient_ready(self, i: int) -> None:
        if not self._depth:
            return
        if self._has_gradient[i]:
            raise GradientError(
                f"rank {self.rank}: '{self.names[i]}' got two gradients in one backward, after the first had gone out",
                hint="one backward for all losses, or model.no_sync() around all but the last",
            )
        if self._order is not None:
            self._order.append(i)
        self._mark_ready(i)

    def _mark_ready(self, i: int) -> None:
        self._has_gradient[i] = True
        bucket, place = self._place[i]
        self._fill(self.parameters[i].grad, place, i)
        bucket.waiting -= 1
        while self._next < len(self.buckets) and not self.buckets[self._next].waiting:
            self._send(self.buckets[self._next])
            self._next += 1
        self.poll()

    def _fill(self, grad: Tensor | None, place: Tensor, i: int) -> None:
        if grad is None:
            place.array[...] = 0
            return
        if grad.is_sparse:
            raise GradientError(
                f"DistributedDataParallel averages no sparse gradients: '{self.names[i]}' got one",
                hint="nn.Embedding(..., sparse=False)",
            )
        # divided before they are summed: halves would overflow otherwise
        share = 1 if self.hook is not None else self.divisor
        np.multiply(grad.array, place.array.dtype.type(1 / share), out=place.array)

    def _send(self, bucket: Bucket) -> None:
        bucket.end_span = collection.in_flight(
            f"DistributedDataParallel.all_reduce bucket {bucket.number}", backward=True
        )
        if self.hook is None:
            bucket.work = dist.all_reduce(bucket.flat, group=self.group, async_op=True)
        else:
            state, hook = self.hook
            bucket.work = hook(state, GradBucket(bucket, self.parameters, bucket is self.buckets[-1], self.group))

    def poll(self) -> None:
        """Advance pending collectives: MPI only transfers data while it is polled."""
        for bucket in self.buckets[: self._next]:
            if bucket.end_span is not None and bucket.work.is_completed():
                self._end_span(bucket)

    def _end_span(self, bucket: Bucket) -> None:
        if bucket.end_span is not None:
            bucket.end_span()
            bucket.end_span = None

    def on_end(self, failed: bool) -> None:
        if not self._depth:
            return
        self._depth -= 1
        if self._depth:
            return
        if failed:
            self.broken = users_line() or "an earlier backward"
            return
        self.finish()

    def finish(self) -> None:
        """Wait for every bucket, and put the averages where the gradients are."""
        for i in [i for i, came in enumerate(self._has_gradient) if not came]:
            self._mark_unused(i)  # it was within reach, but no gradient came
        for bucket in self.buckets:
            result = bucket.work.wait()
            self._end_span(bucket)
            if self.hook is not None:
                self._copy_hook_result(bucket, result)
            bucket.work = None
        flags = Flags(self.buckets)
        # what is decided by the flags at once waits for them; an error comes with the next backward, on all ranks
        late = flags.on_device and not self.find_unused and self._order is None
        lacking = False if late else flags.any()
        # all ranks see the same flags; if none is set, each rank has all gradients and no further collective is needed
        used = self._used_on_any_rank() if self.find_unused and (lacking or self.hook is not None) else None
        for bucket in self.buckets:
            for i, average in bucket.slots():
                if used is None or used[i]:
                    self._deliver(self.parameters[i], average)
        if late:
            self._earlier = flags, self._missing
        elif not self.find_unused and (lacking or self._missing):
            raise self._unused_error(self._missing, lacking)
        # of a backward in which some rank lacked a gradient there is no order; without a hook all ranks know that
        if self._order and (not self.find_unused or used is None):
            self._rebuild_in_arrival_order()

    def _copy_hook_result(self, bucket: Bucket, result: Any) -> None:
        """What a hook's future gave, unless it worked in the buffer."""
        result = result[0] if isinstance(result, (list, tuple)) and result else result
        if isinstance(result, Tensor) and result.array is not bucket.flat.array:
            bucket.flat.array[...] = result.array.reshape(-1)

    def _used_on_any_rank(self) -> Any:
        """Which parameters have a gradient on any rank; the others keep none."""
        used = self.to_device_of_gradients(np.array([p.grad is not None for p in self.parameters], uint8))
        dist.all_reduce(used, dist.ReduceOp.MAX, group=self.group)
        return used.cpu().array

    def _deliver(self, p: Tensor, average: Tensor) -> None:
        if self.as_view:
            p._grad = average
        elif p._grad is None:
            p._grad = make_tensor(average.array.copy())
        else:
            p._grad.ensure_writable("DistributedDataParallel")
            p._grad.array[...] = average.array
        p._grad.count_write("DistributedDataParallel")

    def _raise_earlier(self) -> None:
        """Raise the error of the last backward if a rank lacked a gradient there."""
        if self._earlier is None:
            return
        (flags, missing), self._earlier = self._earlier, None
        if (lacking := flags.any()) or missing:
            raise self._unused_error(missing, lacking)

    def _unused_error(self, own: list[int], known: bool) -> GradientError:
        """The same error on every rank, with the missing gradients of each. If a communication hook of the user has
        dropped the flag, only the ranks with missing gradients detect it."""
        gathered: list[Any] = [own if rank == self.rank else [] for rank in range(self.world)]
        if known:
            dist.all_gather_object(gathered, own, group=self.group)
        lists = [
            f"rank {r}: " + _shorten_list([self.names[i] for i in missing])
            for r, missing in enumerate(gathered)
            if missing
        ]
        return GradientError(
            "parameters got no gradient, for the loss does not depend on them",
            expected="a gradient for each parameter on each rank",
            got="none for\n" + "\n".join(lists),
            hint="DistributedDataParallel(..., find_unused_parameters=True), or requires_grad_(False) before it",
        )

    def _rebuild_in_arrival_order(self) -> None:
        """After the first backward that reached all: buckets in the order in which rank 0 saw gradients come."""
        order = self.to_device_of_gradients(np.array(self._order, np.int64))
        dist.broadcast(order, dist.get_global_rank(self.group, 0), group=self.group)
        self._order = None
        self._build(order.tolist())
        if self.as_view:
            for i, p in enumerate(self.parameters):
                place = self._place[i][1]
                if p._grad is not None:
                    place.array[...] = p._grad.array
                    p._grad = place

    def to_device_of_gradients(self, array: Any) -> Tensor:
        """A tensor where the gradients are, which is where their collectives work."""
        return make_tensor(array).to(self.parameters[0].device)

    # -- for others ----------------------------------------------------------------------------------------------

    def shadow(self) -> None:
        """Take part in another rank's backward with zeros; gradients here stay what they are, but for views."""
        kept = [p._grad for p in self.parameters]
        for p in self.parameters:
            p._grad = None
        finding, self.find_unused, self._shadowing = self.find_unused, True, True
        try:
            self.begin(())
            self.find_unused = finding
            self._depth = 0
            if self._order is not None:
                self._order = list(range(len(self.parameters)))[::-1]
            self.finish()
        finally:
            self.find_unused, self._shadowing = finding, False
            for p, grad in zip(self.parameters, kept, strict=True):
                p._grad = grad


class _Hook:
    def __init__(self, reducer: weakref.ref[Reducer], i: int) -> None:
        self.reducer, self.i = reducer, i

    def __call__(self, _: Tensor) -> None:
        reducer = self.reducer()
        if reducer is not None:
            reducer.gradient_ready(self.i)


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()


def _shorten_list(names: list[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
