"""Which kernel attention uses: there is only one, so PyTorch's switches have no effect."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """PyTorch's kernels. `torch.nn.attention.SDPBackend`."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: Any = None, set_priority: bool = False, **_: Any) -> Iterator[None]:
    """A block in which nothing differs: results are the same with every kernel, to rounding.
    `torch.nn.attention.sdpa_kernel`, `torch.backends.cuda.sdp_kernel`."""
    yield
