"""`torch.backends.mkldnn`: which library multiplies on the CPU is not for scripts to choose."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["flags", "is_available"]

enabled = False
deterministic = True
allow_tf32 = False


def is_available() -> bool:
    """False: the kernels are NumPy's, ONNX Runtime's and ox's own."""
    return False


@contextlib.contextmanager
def flags(*_: Any, **__: Any) -> Iterator[None]:
    """A block in which nothing differs. `torch.backends.mkldnn.flags`."""
    yield
