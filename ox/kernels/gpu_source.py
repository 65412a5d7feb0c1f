"""Kernel sources for NVRTC, which takes one text."""

from __future__ import annotations

from ox.kernels.compiler import SOURCE

INCLUDE = '#include "'


def gpu_source(text: str) -> str:
    """A source behind the words of a GPU (cuda.h), with what it includes in its place, each file once."""
    text = f'#include "cuda.h"\n{text}'
    seen: set[str] = set()
    while INCLUDE in text:
        before, _, rest = text.partition(INCLUDE)
        name, _, after = rest.partition('"')
        included = "" if name in seen else (SOURCE / name).read_text().replace("#pragma once", "")
        seen.add(name)
        text = before + included + after
    return text
