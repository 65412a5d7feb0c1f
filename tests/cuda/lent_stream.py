"""A stream that CuPy has from somebody else, who destroys it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest


def lent_stream() -> tuple[Any, Callable[[], None]]:
    """The stream, and what destroys it. Skips on a device, where using such a stream is undefined."""
    if "host_cuda" not in sys.modules:
        pytest.skip("using a stream that was destroyed is undefined on a device")
    import cupy

    streams = [cupy.cuda.Stream(non_blocking=True)]

    class Owner:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, streams[0].ptr

    return cupy.cuda.Stream.from_external(Owner()), streams.clear
