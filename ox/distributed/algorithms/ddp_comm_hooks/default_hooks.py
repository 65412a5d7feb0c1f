"""Communication hooks that average gradients in full and in half precision, for
`DistributedDataParallel.register_comm_hook`. `torch.distributed.algorithms.ddp_comm_hooks.default_hooks`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ox import futures
from ox.distributed.collectives import all_reduce
from ox.distributed.work import Work
from ox.distributed.world import get_world_size
from ox.dtypes import DType, bfloat16, float16
from ox.tensors.tensor import Tensor

Hook = Callable[[Any, Any], Any]


class Future(futures.Future[Tensor]):
    """The tensor that a collective writes, or a function of it. New code needs only ``work.get_future().then(...)``."""

    def __init__(self, work: Work, value: Tensor, then: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self._work, self._tensor, self._function = work, value, then

    def done(self) -> bool:
        return self._done or self._work.is_completed()

    def is_completed(self) -> bool:
        """The same, under the name that `Work` has."""
        return self.done()

    def wait(self) -> Tensor:
        if not self._done:
            self._work.wait()
            self.set_result(self._tensor if self._function is None else self._function(self._tensor))
        return self.value()

    def value(self) -> Tensor:
        return super().value() if self._done or not self._work.is_completed() else self.wait()


def _average(group: Any, tensor: Tensor) -> futures.Future[Tensor]:
    work = all_reduce(tensor, group=group, async_op=True)
    assert work is not None  # with async_op there is one
    return work.get_future().then(lambda future: future.value()[0])


def _group_of(process_group: Any, bucket: Any) -> Any:
    return bucket.process_group if process_group is None else process_group


def allreduce_hook(process_group: Any, bucket: Any) -> futures.Future[Tensor]:
    """What DistributedDataParallel does without a hook. `process_group`: None for the model's own."""
    group = _group_of(process_group, bucket)
    return _average(group, bucket.buffer().div_(get_world_size(group)))


def _compress(process_group: Any, bucket: Any, dtype: DType) -> futures.Future[Tensor]:
    group, buffer = _group_of(process_group, bucket), bucket.buffer()
    compressed = (buffer / get_world_size(group)).to(dtype)
    return _average(group, compressed).then(lambda future: buffer.copy_(future.value()))


def fp16_compress_hook(process_group: Any, bucket: Any) -> futures.Future[Tensor]:
    """Average float16 roundings of the gradients. It halves the bytes where a backend sums halves, as NCCL does; over
    MPI they travel as float32."""
    return _compress(process_group, bucket, float16)


def bf16_compress_hook(process_group: Any, bucket: Any) -> futures.Future[Tensor]:
    """`fp16_compress_hook` in bfloat16."""
    return _compress(process_group, bucket, bfloat16)


def _compress_for(hook: Hook, dtype: DType) -> Hook:
    def compressed_hook(state: Any, bucket: Any) -> futures.Future[Tensor]:
        buffer: Tensor = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype).to(buffer.dtype))
        future: futures.Future[Tensor] = hook(state, bucket)

        def copy(done: futures.Future[Any]) -> Tensor:
            result = done.value()
            value: Tensor = result[0] if isinstance(result, list) else result
            buffer.copy_(value.to(dtype))
            return buffer

        return future.then(copy)

    return compressed_hook


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """A hook that gives `hook` gradients rounded to float16, and rounds its result, too. The buffer itself keeps its
    type: a hook of PyTorch gets a buffer of half the bytes. `default_hooks.fp16_compress_wrapper`."""
    return _compress_for(hook, float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """`fp16_compress_wrapper` in bfloat16."""
    return _compress_for(hook, bfloat16)


__all__ = [
    "Future", "allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook",
    "fp16_compress_wrapper",
]  # fmt: skip
