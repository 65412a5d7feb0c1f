"""Ways in which DistributedDataParallel may average a bucket. `torch.distributed.algorithms.ddp_comm_hooks`."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

from ox.core.lazy import lazy_modules
from ox.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks


class DDPCommHookType(Enum):
    """The hooks of this package. `torch.distributed.algorithms.ddp_comm_hooks.DDPCommHookType`."""

    ALLREDUCE = partial(default_hooks.allreduce_hook)
    FP16_COMPRESS = partial(default_hooks.fp16_compress_hook)
    BF16_COMPRESS = partial(default_hooks.bf16_compress_hook)
    NOOP = partial(debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """`model.register_comm_hook(state, hook)` with a hook of this package.
    `torch.distributed.algorithms.ddp_comm_hooks.register_ddp_comm_hook`.

    Args:
        model: a DistributedDataParallel.
        state: the process group of the exchange; None for the model's own.
    """
    model.register_comm_hook(state, comm_hook_type.value)


__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]

__getattr__, __dir__ = lazy_modules(__name__)
