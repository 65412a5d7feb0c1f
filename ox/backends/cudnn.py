"""`torch.backends.cudnn`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ox.devices.cuda import available as is_available

__all__ = ["flags", "is_acceptable", "is_available", "version"]

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = True
allow_tf32 = False
fp32_precision = "ieee"


def version() -> None:
    """None: cuDNN is CuPy's and ONNX Runtime's own matter."""


def is_acceptable(tensor: Any) -> bool:
    """Whether a tensor is on a GPU. `torch.backends.cudnn.is_acceptable`."""
    return bool(tensor.is_cuda)


@contextlib.contextmanager
def flags(*_: Any, **__: Any) -> Iterator[None]:
    """A block in which nothing differs. `torch.backends.cudnn.flags`."""
    yield
