"""Tensor's methods of matrices and spectra: those of `ox.linalg` and `ox.stft`, which are loaded when first called."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def _later(module: str, name: str) -> Any:
    """The function `name` of a module as a method."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(module), name)(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`{module}.{name}` of this tensor."
    return method


class MatrixMethods:
    """Mixed into `ox.Tensor`."""

    det, slogdet, inverse = (_later("ox.linalg", name) for name in ("det", "slogdet", "inv"))
    cholesky, pinverse, logdet = (_later("ox.linalg.solvers", name) for name in ("cholesky", "pinverse", "logdet"))
    matrix_exp, matrix_power = _later("ox.linalg", "matrix_exp"), _later("ox.linalg", "matrix_power")
    cholesky_inverse, cholesky_solve = (_later("ox.linalg", name) for name in ("cholesky_inverse", "cholesky_solve"))
    qr, svd = (_later("ox.linalg.legacy", name) for name in ("qr", "svd"))
    stft, istft = _later("ox.signal.stft", "stft"), _later("ox.signal.stft", "istft")
