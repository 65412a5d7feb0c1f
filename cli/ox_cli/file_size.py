"""Sizes of files, as the commands print them."""

from __future__ import annotations


def size(count: int) -> str:
    """``247 kB``."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}" if count < 1000 * factor else f"{count / factor:,.0f} {unit}"
    return f"{count} bytes"
