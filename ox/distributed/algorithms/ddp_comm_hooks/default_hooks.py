"""Communication hooks that average gradients in full and in half precision, for
`DistributedDataParallel.register_comm_hook`. `torch.distributed.algorithms.ddp_comm_hooks.default_hooks`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ox.core.operator import make_tensor
from ox.distributed.collectives import all_reduce
from ox.distributed.work import Work
from ox.distributed.world import get_world_size
from ox.dtypes import DType, bfloat16, float16
from ox.tensors.tensor import Tensor


class Future:
    """A collective and the functions to apply to its result."""

    def __init__(self, work: Work, value: Tensor, then: Callable[[Tensor], Tensor] | None = None) -> None:
        self._work, self._value, self._then = work, value, then

    def is_completed(self) -> bool:
        return self._work.is_completed()

    def wait(self) -> Tensor:
        """Waits for the result."""
        self._work.wait()
        if self._then is not None:
            self._value, self._then = self._then(self._value), None
        return self._value

    def then(self, function: Callable[[Tensor], Tensor]) -> Future:
        """A future whose result is `function(result)`; it is computed in `wait`."""
        before = self._then
        return Future(self._work, self._value, function if before is None else lambda x: function(before(x)))


def _average(group: Any, bucket: Any, kind: DType | None) -> Future:
    group = bucket.process_group if group is None else group
    buffer: Tensor = bucket.buffer()
    own = buffer.array
    share = own.dtype.type(1 / get_world_size(group))
    if kind is None or own.dtype.itemsize <= 2:
        np.multiply(own, share, out=own)
        return Future(_sum(buffer, group), buffer)
    narrow = make_tensor((own * share).astype(kind))

    def widen(x: Tensor) -> Tensor:
        own[...] = x.array
        return buffer

    return Future(_sum(narrow, group), narrow, widen)


def _sum(tensor: Tensor, group: Any) -> Work:
    work = all_reduce(tensor, group=group, async_op=True)
    assert work is not None  # with async_op there is one
    return work


def allreduce_hook(process_group: Any, bucket: Any) -> Future:
    """What DistributedDataParallel does without a hook. `process_group`: None for the model's own."""
    return _average(process_group, bucket, None)


def fp16_compress_hook(process_group: Any, bucket: Any) -> Future:
    """Average float16 roundings of the gradients. It halves the bytes where a backend sums halves, as NCCL does; over
    MPI they travel as float32."""
    return _average(process_group, bucket, float16)


def bf16_compress_hook(process_group: Any, bucket: Any) -> Future:
    """`fp16_compress_hook` in bfloat16."""
    return _average(process_group, bucket, bfloat16)


__all__ = ["Future", "allreduce_hook", "bf16_compress_hook", "fp16_compress_hook"]
