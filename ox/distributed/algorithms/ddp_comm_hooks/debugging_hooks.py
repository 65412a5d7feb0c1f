"""A communication hook that exchanges nothing. `torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks`."""

from __future__ import annotations

from typing import Any

from ox.futures import Future
from ox.tensors.tensor import Tensor


def noop_hook(_: Any, bucket: Any) -> Future[Tensor]:
    """Leave each rank its own gradients, to measure a step without their exchange. Ranks drift apart."""
    future: Future[Tensor] = Future()
    future.set_result(bucket.buffer())
    return future


__all__ = ["noop_hook"]
