"""Averages gradients over ranks while backward goes on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from ox import distributed as dist
from ox.autograd.grad_ready import add_observer
from ox.call_site import users_line
from ox.core.node import Node
from ox.core.operator import make_tensor
from ox.distributed.grad_bucket import GradBucket
from ox.dtypes import uint8
from ox.errors import ArgumentError, GradientError, ShapeError
from ox.nn.parallel.bucket import FIRST, Bucket, Flags, assign_buckets
from ox.profiler import collection
from ox.tensors.tensor import Tensor

CommHook = Callable[[Any, GradBucket], Any]


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
        self.enabled = False  # whether backwards synchronize
        self.pending = False  # whether no such backward has followed a forward that synchronizes
        self.synchronized = False  # whether a backward did since the last forward
        self._synced: weakref.WeakSet[Any] = weakref.WeakSet()  # nodes of the outputs of such forwards
        self._backwards = 0  # how many backwards are running, one inside the other
        self._used = [False] * len(self.parameters)  # which got a gradient since the last synchronization
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

    # -- a forward -----------------------------------------------------------------------------------------------

    @property
    def in_backward(self) -> bool:
        """Whether a backward is running; a forward inside it computes again what a checkpoint dropped."""
        return self._backwards > 0

    def after_forward(self, synchronizes: bool, outputs: Any) -> None:
        """After a forward with gradients. One inside `no_sync` switches the exchange off, unless a forward before it
        still waits for its backward."""
        if synchronizes:
            self.enabled = self.pending = True
            self._synced.update(_nodes_of(outputs))
        elif not self.pending:
            self.enabled = False

    def _synchronizes(self, nodes: Collection[Any]) -> bool:
        """Whether a backward through these nodes has a forward outside `no_sync`."""
        return self.enabled or not set(self._synced).isdisjoint(nodes)

    # -- a backward ----------------------------------------------------------------------------------------------

    def on_start(self, leaves: Collection[Any], nodes: Collection[Any], create_graph: bool) -> None:
        self._backwards += 1
        reached = {self._number[leaf] for leaf in leaves if leaf in self._number}
        if self._depth:
            self._depth += 1  # a backward inside one of ours: what it brings is waited for at the end
        elif reached and self._synchronizes(nodes):
            if create_graph:
                raise GradientError(
                    "backward(create_graph=True) under DistributedDataParallel: an exchange of ranks has no history",
                    hint="ox.autograd.grad(..., create_graph=True) in the loss, then loss.backward()",
                )
            self.begin(reached)

    def begin(self, reached: Collection[int]) -> None:
        """Open the buckets. Parameters that are not `reached` count as ready."""
        self._raise_earlier()
        self.pending = False
        self._depth, self._next = 1, 0
        self._missing: list[int] = []
        self._lacking = False  # whether this rank lacks a gradient
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
            self._lacking = True
            self._place[i][0].flag[...] = 1
        self._mark_ready(i)

    def gradient_ready(self, i: int) -> None:
        self._used[i] = True
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
            bucket.work = dist.all_reduce(bucket.memory, group=self.group, async_op=True)
        else:
            state, hook = self.hook
            bucket.work = hook(state, self._grad_bucket(bucket))
            if not hasattr(bucket.work, "wait"):
                raise ArgumentError(
                    "a communication hook returns a future",
                    expected="work.get_future(), its then(), or an ox.futures.Future with set_result(tensor)",
                    got=type(bucket.work).__name__,
                )

    def _grad_bucket(self, bucket: Bucket) -> GradBucket:
        parameters = [self.parameters[i] for i in bucket.indices]
        return GradBucket(
            bucket.number, bucket.flat, bucket.gradients, parameters, bucket is self.buckets[-1], self.group
        )

    def poll(self) -> None:
        """Advance pending collectives: MPI only transfers data while it is polled."""
        for bucket in self.buckets[: self._next]:
            if bucket.end_span is not None and _is_completed(bucket.work):
                self._end_span(bucket)

    def _end_span(self, bucket: Bucket) -> None:
        if bucket.end_span is not None:
            bucket.end_span()
            bucket.end_span = None

    def on_end(self, failed: bool) -> None:
        self._backwards -= 1
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
        flags = Flags([bucket.flag for bucket in self.buckets] if self.hook is None else [self._flag_of_all_ranks()])
        # what is decided by the flags at once waits for them; an error comes with the next backward, on all ranks
        late = flags.on_device and not self.find_unused and self._order is None
        lacking = False if late else flags.any()
        # all ranks see the same flags; if none is set, each rank has all gradients and no further collective is needed
        used = self._used_on_any_rank() if self.find_unused and lacking else None
        self._used, self.synchronized = [False] * len(self.parameters), True
        for bucket in self.buckets:
            for i, average in bucket.slots():
                if used is None or used[i]:
                    self._deliver(self.parameters[i], average)
        if late:
            self._earlier = flags, self._missing
        elif not self.find_unused and lacking:
            raise self._unused_error(self._missing)
        # of a backward in which some rank lacked a gradient there is no order
        if self._order and used is None:
            self._rebuild_in_arrival_order()

    def _copy_hook_result(self, bucket: Bucket, result: Any) -> None:
        """What a hook's future gave, unless it worked in the buffer."""
        result = result[0] if isinstance(result, (list, tuple)) and result else result
        if not isinstance(result, Tensor) or result.array is bucket.flat.array:
            return
        if result.array.size != bucket.flat.array.size:
            raise ShapeError(
                f"the result of a communication hook has another size than bucket {bucket.number}",
                expected=f"{bucket.flat.array.size} elements", got=f"{result.array.size}",
            )  # fmt: skip
        bucket.flat.array[...] = result.array.reshape(-1)

    def _flag_of_all_ranks(self) -> Any:
        """Whether any rank lacks a gradient, next to the buffers that a hook exchanges."""
        flag = self.to_device_of_gradients(np.array([self._lacking], uint8))
        dist.all_reduce(flag, dist.ReduceOp.MAX, group=self.group)
        return flag.array

    def _used_on_any_rank(self) -> Any:
        """Which parameters got a gradient on any rank since the last synchronization; the others keep theirs."""
        used = self.to_device_of_gradients(np.array(self._used, uint8))
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
        if flags.any():
            raise self._unused_error(missing)

    def _unused_error(self, own: list[int]) -> GradientError:
        """The same error on every rank, with the missing gradients of each."""
        gathered: list[Any] = [None] * self.world
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


def _nodes_of(outputs: Any) -> Iterator[Any]:
    """The nodes that computed the tensors in nested outputs."""
    if isinstance(outputs, Tensor):
        if isinstance(outputs.node, Node):
            yield outputs.node
    elif isinstance(outputs, Mapping):
        for value in outputs.values():
            yield from _nodes_of(value)
    elif isinstance(outputs, list | tuple):
        for value in outputs:
            yield from _nodes_of(value)
    elif is_dataclass(outputs) and not isinstance(outputs, type):
        yield from _nodes_of([getattr(outputs, field.name) for field in fields(outputs)])


def _is_completed(work: Any) -> bool:
    """Of a Work or a future."""
    return bool(work.is_completed() if hasattr(work, "is_completed") else work.done())


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()


def _shorten_list(names: list[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
