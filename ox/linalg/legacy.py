"""`torch.qr` and `torch.svd`, which PyTorch has deprecated and scripts still call."""

from __future__ import annotations

from typing import Any

from ox import functions as F
from ox.functions.overloads import with_keywords
from ox.functions.return_types import DecompositionQR, DecompositionSVD
from ox.linalg import factorizations


def qr(input: Any, some: bool = True) -> DecompositionQR:
    """Q with orthonormal columns and an upper triangle R: `ox.linalg.qr` with mode "reduced", or with `some=False`
    "complete". `torch.qr`."""
    return DecompositionQR(*factorizations.qr(input, "reduced" if some else "complete"))


def svd(input: Any, some: bool = True, compute_uv: bool = True) -> DecompositionSVD:
    """U, S and V with input = U diag(S) V^T: `ox.linalg.svd` with `full_matrices` turned round and V not transposed;
    zeros for U and V without `compute_uv`. `torch.svd`."""
    if not compute_uv:
        m, n = input.shape[-2:]
        lead = input.shape[:-2]
        values = factorizations.svdvals(input)
        zeros = [F.zeros_like(values[..., :1, None]).expand(*lead, k, k).clone().detach() for k in (m, n)]
        return DecompositionSVD(zeros[0], values, zeros[1])
    u, s, vh = factorizations.svd(input, not some)
    return DecompositionSVD(u, s, F.transpose(vh, -1, -2))


with_keywords(globals(), ("qr", "svd"), frozenset(), plain=frozenset())
