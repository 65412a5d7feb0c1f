"""How many multiplications and additions a call asks for; of the operators that do most of them."""

from __future__ import annotations

from math import isqrt, prod
from typing import Any


def flops(name: str, arrays: list[Any], result: Any) -> int:
    """Two for each product that is added up; 0 for operators that are not known here."""
    out = result[0] if isinstance(result, tuple) else result
    if name in ("MatMul", "Gemm") and arrays[0].ndim:
        inner = arrays[0].size // max(prod(arrays[0].shape[:-1]), 1)
        if name == "Gemm":  # either may be transposed: what the two and the result have, without their common size
            return 2 * isqrt(arrays[0].size * arrays[1].size * out.size)
        return int(2 * out.size * inner)
    if name in ("Conv", "ConvTranspose") and arrays[1].ndim > 2:
        weight = arrays[1]
        spread = out if name == "Conv" else arrays[0]
        return int(2 * spread.size * prod(weight.shape[1:]))
    return 0
