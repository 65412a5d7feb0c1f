"""Memory that the C library's allocator keeps after it was freed, given back to the system."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any


@cache
def glibc() -> Any:
    """The C library if it is glibc, otherwise None."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version, library.mallopt, library.malloc_trim  # noqa: B018
    except (OSError, AttributeError):
        return None
    return library


def trim_heaps() -> None:
    """Return the free memory of all heaps to the system. Other allocators than glibc's are left as they are."""
    library = glibc()
    if library is not None:
        library.malloc_trim(0)
