"""The truncated normal distribution as PyTorch draws it: by rejection."""

from __future__ import annotations

from math import erf, sqrt
from typing import Any

from ox import functions as F
from ox.dtypes import bool_
from ox.tensors.tensor import Tensor

OFTEN = 0.3  # where this much of the distribution is inside the bounds, normal numbers are drawn until they are inside


def normal_(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    """Fill with normal numbers inside [a, b]. All numbers are drawn again in each round, and those taken that are
    still missing: normal ones, or where few of those would do, uniform ones accepted by their density (von Neumann,
    1951)."""
    low, high = (0.5 * (1 + erf((edge - mean) / std / sqrt(2))) for edge in (a, b))
    made = _normal(tensor, mean, std, a, b, generator) if high - low > OFTEN else None
    if made is None:
        made = _uniform(tensor, mean, std, a, b, generator)
    return tensor.copy_(made)


def _normal(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    made = F.empty_like(tensor.detach()).normal_(mean, std, generator=generator)
    low, high = (float(tensor.array.dtype.type(edge)) for edge in (a, b))
    while bool((outside := (made < low) | (made > high)).any()):
        made = F.where(outside, F.empty_like(made).normal_(mean, std, generator=generator), made)
    return made


def _uniform(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    made = F.empty_like(tensor.detach())
    pending = F.ones_like(made, dtype=bool_)
    while True:
        candidates = F.empty_like(made).uniform_(a, b, generator=generator)
        made = F.where(pending, candidates, made)
        density = ((candidates - mean) / std) ** 2 * -0.5 - peak
        refused = F.empty_like(made).uniform_(generator=generator).log() > density
        pending = pending & refused
        if not bool(pending.any()):
            return made
