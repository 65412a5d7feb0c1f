"""Tensor's methods of matrices and spectra: those of `ox.linalg` and `ox.stft`, which are loaded when first called."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


def _linalg() -> ModuleType:
    from ox import linalg

    return linalg


def _solvers() -> ModuleType:
    from ox.linalg import solvers

    return solvers


def _legacy() -> ModuleType:
    from ox.linalg import legacy

    return legacy


def _stft() -> ModuleType:
    from ox.signal import stft

    return stft


def _method(module: Callable[[], ModuleType], path: str, name: str) -> Any:
    """The function `name` of a module as a method."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(module(), name)(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`{path}.{name}` of this tensor."
    return method


class MatrixMethods:
    """Mixed into `ox.Tensor`."""

    det, slogdet, inverse, matrix_exp, matrix_power, cholesky_inverse, cholesky_solve = (
        _method(_linalg, "ox.linalg", name)
        for name in ("det", "slogdet", "inv", "matrix_exp", "matrix_power", "cholesky_inverse", "cholesky_solve")
    )
    cholesky, pinverse, logdet = (
        _method(_solvers, "ox.linalg.solvers", name) for name in ("cholesky", "pinverse", "logdet")
    )
    qr, svd = (_method(_legacy, "ox.linalg.legacy", name) for name in ("qr", "svd"))
    stft, istft = (_method(_stft, "ox.signal.stft", name) for name in ("stft", "istft"))
