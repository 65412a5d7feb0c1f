"""Whether products of float32 matrices on a GPU may round their factors to TF32 (10 bits of fraction), which tensor
cores multiply: `torch.backends.cuda.matmul.allow_tf32` and `torch.set_float32_matmul_precision`."""

from __future__ import annotations

from ox.errors import ArgumentError

PRECISIONS = ("highest", "high", "medium")

_precision = "highest"


def precision() -> str:
    """ "highest": float32; "high" and "medium": TF32."""
    return _precision


def set_precision(precision: str) -> None:
    """Raises ArgumentError for another word than those of `precision`."""
    global _precision
    if precision not in PRECISIONS:
        raise ArgumentError(
            "there is no such precision of products", expected=", ".join(PRECISIONS), got=repr(precision)
        )
    _precision = precision


def allows_tf32() -> bool:
    """Whether TF32 may be used."""
    return _precision != "highest"


def allow_tf32(allowed: bool) -> None:
    """ "high" or "highest"."""
    set_precision("high" if allowed else "highest")
