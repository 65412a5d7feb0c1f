"""Window functions, under the names of `torch.signal.windows`: symmetric unless `sym` is False, which makes them
periodic, as a Fourier transform wants them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ox.dtypes import DType, get_default_dtype, is_floating
from ox.errors import ArgumentError, DTypeError
from ox.functions.creation import tensor
from ox.functions.keyword_arguments import factory_without_out
from ox.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]


def as_tensor(values: Array, dtype: DType | None, device: str | None, requires_grad: bool) -> Tensor:
    """The window in its element type. Raises DTypeError for integers."""
    dtype = np.dtype(dtype or get_default_dtype())
    if not is_floating(dtype):
        raise DTypeError("a window has a floating type", got=str(dtype))
    return tensor(values.astype(dtype), device=device, requires_grad=requires_grad)


def places(M: int, sym: bool) -> tuple[Array, int]:
    """0 to M - 1, and the last place of the period. Raises ArgumentError for a negative size."""
    if M < 0:
        raise ArgumentError("a window has a size of 0 or more", got=str(M))
    return np.arange(M, dtype=np.float64), max(M - 1 if sym else M, 1)


def cosines(M: int, weights: Iterable[float], sym: bool) -> Array:
    """weights[0] - weights[1] cos(2πk/n) + weights[2] cos(4πk/n) ...; a window of one element is 1."""
    k, n = places(M, sym)
    if M == 1:
        return np.ones(1)
    total = np.zeros(M)
    for i, weight in enumerate(weights):
        total += (-1) ** i * weight * np.cos(2 * np.pi * i * k / n)
    return total


@factory_without_out
def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The sum of cosines with weights `a` of alternating sign. `torch.signal.windows.general_cosine`."""
    return as_tensor(cosines(M, a, sym), dtype, device, requires_grad)


@factory_without_out
def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - (1 - alpha) cos(2πk/n). `torch.signal.windows.general_hamming`."""
    return as_tensor(cosines(M, (alpha, 1 - alpha), sym), dtype, device, requires_grad)


@factory_without_out
def hamming(
    M: int, *, sym: bool = True, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """0.54 - 0.46 cos(2πk/n). `torch.signal.windows.hamming`."""
    return as_tensor(cosines(M, (0.54, 0.46), sym), dtype, device, requires_grad)


@factory_without_out
def hann(
    M: int, *, sym: bool = True, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """1/2 - 1/2 cos(2πk/n). `torch.signal.windows.hann`."""
    return as_tensor(cosines(M, (0.5, 0.5), sym), dtype, device, requires_grad)


@factory_without_out
def blackman(
    M: int, *, sym: bool = True, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """0.42 - 0.5 cos(2πk/n) + 0.08 cos(4πk/n). `torch.signal.windows.blackman`."""
    return as_tensor(cosines(M, (0.42, 0.5, 0.08), sym), dtype, device, requires_grad)


@factory_without_out
def nuttall(
    M: int, *, sym: bool = True, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Nuttall's minimal window of four terms. `torch.signal.windows.nuttall`."""
    return as_tensor(cosines(M, (0.3635819, 0.4891775, 0.1365995, 0.0106411), sym), dtype, device, requires_grad)


def triangle(M: int, sym: bool) -> Array:
    k, n = places(M, sym)
    return np.ones(1) if M == 1 else 1 - np.abs(2 * k / n - 1)


@factory_without_out
def bartlett(
    M: int, *, sym: bool = True, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """A triangle, 0 at both ends. `torch.signal.windows.bartlett`."""
    return as_tensor(triangle(M, sym), dtype, device, requires_grad)


@factory_without_out
def cosine(
    M: int, *, sym: bool = True, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Half a wave of the sine. `torch.signal.windows.cosine`."""
    k, _ = places(M, sym)
    return as_tensor(np.sin(np.pi * (k + 0.5) / (M if sym or M == 1 else M + 1)), dtype, device, requires_grad)


@factory_without_out
def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-|k - center| / tau). `torch.signal.windows.exponential`."""
    if tau <= 0 or (sym and center is not None):
        raise ArgumentError(
            "an exponential window has a tau above 0, and a center only if it is periodic", got=str(tau)
        )
    k, _ = places(M, sym)
    middle = (M if not sym and M > 1 else M - 1) / 2 if center is None else center
    return as_tensor(np.exp(-np.abs(k - middle) / tau), dtype, device, requires_grad)


@factory_without_out
def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-(k - middle)² / 2 std²). `torch.signal.windows.gaussian`."""
    if std <= 0:
        raise ArgumentError("a gaussian window has a std above 0", got=str(std))
    k, _ = places(M, sym)
    middle = (M if not sym and M > 1 else M - 1) / 2
    return as_tensor(np.exp(-((k - middle) ** 2) / (2 * std**2)), dtype, device, requires_grad)


@factory_without_out
def bell(M: int, beta: float, sym: bool) -> Array:
    k, n = places(M, sym)
    return np.ones(1) if M == 1 else np.i0(beta * np.sqrt(np.maximum(1 - (2 * k / n - 1) ** 2, 0))) / np.i0(beta)


@factory_without_out
def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Kaiser's window, of Bessel functions. `torch.signal.windows.kaiser`."""
    if beta < 0:
        raise ArgumentError("a kaiser window has a beta of 0 or more", got=str(beta))
    return as_tensor(bell(M, beta, sym), dtype, device, requires_grad)
