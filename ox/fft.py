"""Discrete Fourier transforms, under the names of `torch.fft`.

Tensors have no complex element type. Where PyTorch returns a complex tensor [..., n], these functions return one of
pairs of real and imaginary parts, [..., n, 2] in memory, that stands for it (`ox.tensors.complex_pairs`): its shape is
[..., n], these functions take it again, and what would mean another thing for complex numbers is refused.
`ox.view_as_real(y)` is the pairs as a tensor like others: the magnitude of a spectrum is
`ox.view_as_real(y).norm(dim=-1)`; `ox.view_as_complex(pairs)` or `complex(real, imag)` the way back. A tensor without
the mark holds real numbers, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox import ops
from ox.core.constants import axes_tensor, scalar
from ox.core.promotion import cast
from ox.core.symbolic import Dim as SymInt
from ox.core.symbolic import size_tensor
from ox.dtypes import DType, get_default_dtype, int64, is_floating
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.functions import cat, roll, zeros_like
from ox.functions.creation import arange
from ox.functions.dimension_arguments import one_dim
from ox.functions.overloads import with_keywords
from ox.tensors.complex_pairs import is_marked, marked, view_as_complex, without_mark
from ox.tensors.tensor import Tensor

Dim = int | Sequence[int] | None


def complex(real: Any, imag: Any = None) -> Tensor:
    """Real and imaginary parts [...] (by default zeros) as one tensor [..., 2]."""
    return marked(_to_pairs(real, imag))


def _to_pairs(real: Any, imag: Any = None) -> Tensor:
    last = ops.Unsqueeze(real, axes_tensor([-1]))
    return cat([last, zeros_like(last) if imag is None else ops.Unsqueeze(imag, axes_tensor([-1]))], -1)


def conj(x: Any) -> Tensor:
    """The complex conjugate of [..., 2]."""
    return view_as_complex(x).conj()


def _pairs(x: Any, what: str) -> Any:
    """Complex values as plain pairs: those that are marked, or real values and zeros."""
    if is_marked(x):
        return without_mark(x)
    return _to_pairs(_reals(x, what))


def _reals(x: Any, what: str) -> Any:
    if is_marked(x):
        raise DTypeError(
            f"{what} takes real values", got="complex ones, as ox.fft gives them",
            hint="ox.fft.fft(x) and its like, or x.real",
        )  # fmt: skip
    if x.array.dtype.kind in "iub":
        return cast(x, get_default_dtype())
    if not is_floating(x.array.dtype):
        raise DTypeError(f"{what} takes real values", got=str(x.array.dtype))
    if not x.array.ndim:
        raise ShapeError(f"{what} takes at least one dimension", got="[]")
    return x


def _length(n: Any, what: str) -> Tensor | None:
    if n is None:
        return None
    if n < 1:
        raise ArgumentError(f"{what} has a length of 1 or more", got=str(n))
    return scalar(n, int64)


def _normed(y: Tensor, n: Any, norm: str | None, inverse: bool, what: str) -> Tensor:
    """DFT divides in the inverse direction: "backward"."""
    norm = norm or "backward"
    if norm not in ("backward", "ortho", "forward"):
        raise ArgumentError(f"{what} has no norm {norm!r}", expected="'backward', 'ortho' or 'forward'")
    if norm == "backward":
        return y
    size = scalar(n, y.array.dtype)
    if norm == "ortho":
        size = ops.Sqrt(size)
    return ops.Mul(y, size) if inverse else ops.Div(y, size)


def _transform(x: Any, n: Any, dim: int, norm: str | None, inverse: bool, what: str) -> Tensor:
    at = one_dim(dim, x.array.ndim - 1)
    length = n if n is not None else x.shape[at]
    y = ops.DFT(x, _length(n, what), _axis(at), inverse=int(inverse))
    return _normed(y, length, norm, inverse, what)


def _axis(at: int) -> Tensor:
    return scalar(at, int64)


def fft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform along one dimension, cut or padded with zeros to n: [..., m, 2] to [..., n, 2]. `torch.fft.fft`.

    Args:
        norm: "backward" divides the inverse by n, "forward" this direction, "ortho" both by sqrt(n).
    """
    return marked(_transform(_pairs(input, "fft"), n, dim, norm, False, "fft"))


def ifft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `fft`. `torch.fft.ifft`."""
    return marked(_transform(_pairs(input, "ifft"), n, dim, norm, True, "ifft"))


def rfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform of real values: the first n / 2 + 1 frequencies, [..., m] to [..., n / 2 + 1, 2].
    `torch.fft.rfft`."""
    x = _reals(input, "rfft")
    at = one_dim(dim, x.array.ndim)
    length = n if n is not None else x.shape[at]
    y = ops.DFT(ops.Unsqueeze(x, axes_tensor([-1])), _length(n, "rfft"), _axis(at), onesided=1)
    return marked(_normed(y, length, norm, False, "rfft"))


def irfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`: real values [..., n], by default twice as many as [..., m, 2] less two.
    `torch.fft.irfft`."""
    x = _pairs(input, "irfft")
    at = one_dim(dim, x.array.ndim - 1)
    size = x.shape[at]
    length = n if n is not None else (size - 1) * 2
    wanted = _length(length, "irfft")
    half = length // 2 + 1
    if half != size:  # cut or padded here: ONNX Runtime wants just as many as there should be
        x = ops.Pad(x, size_tensor([0, half - size]), None, axes_tensor([at]))
    y = ops.DFT(x, wanted, _axis(at), inverse=1, onesided=1)
    return _normed(ops.Squeeze(y, axes_tensor([-1])), length, norm, True, "irfft")


def hfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The real transform [..., n] of values that are Hermitian, given as their first half [..., m, 2].
    `torch.fft.hfft`."""
    x = _pairs(input, "hfft")
    at = one_dim(dim, x.array.ndim - 1)
    return irfft(conj(x), n, at, _OTHER.get(norm or "backward", norm))


def ihfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `hfft`: real values to the first half [..., n / 2 + 1, 2] of what is Hermitian.
    `torch.fft.ihfft`."""
    return conj(rfft(input, n, dim, _OTHER.get(norm or "backward", norm)))


_OTHER = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _several(rank: int, s: Any, dim: Dim, what: str) -> list[tuple[int | None, int]]:
    """Length and dimension of each transform. The lengths alone are of the last dimensions; -1 keeps a size."""
    sizes = None if s is None else [s] if isinstance(s, int) else list(s)
    if dim is None:
        count = rank if sizes is None else len(sizes)
        if count > rank:
            raise ArgumentError(f"{what} has more lengths than dimensions", got=str(sizes))
        dims = list(range(rank - count, rank))
    else:
        dims = [one_dim(d, rank) for d in ([dim] if isinstance(dim, int) else dim)]
    if len(set(dims)) != len(dims) or (sizes is not None and len(sizes) != len(dims)):
        raise ArgumentError(f"{what} takes each dimension once, and a length for each", got=f"s={s}, dim={dim}")
    lengths = [None] * len(dims) if sizes is None else [None if n == -1 else n for n in sizes]
    return list(zip(lengths, dims, strict=True))


def fftn(input: Any, s: Any = None, dim: Dim = None, norm: str | None = None) -> Tensor:
    """`fft` along several dimensions: those of `dim`, or the last as there are lengths `s`, or all.
    `torch.fft.fftn`."""
    y: Tensor = _pairs(input, "fftn")
    for n, at in _several(y.array.ndim - 1, s, dim, "fftn"):
        y = _transform(y, n, at, norm, False, "fftn")
    return marked(y)


def ifftn(input: Any, s: Any = None, dim: Dim = None, norm: str | None = None) -> Tensor:
    """The inverse of `fftn`. `torch.fft.ifftn`."""
    y: Tensor = _pairs(input, "ifftn")
    for n, at in _several(y.array.ndim - 1, s, dim, "ifftn"):
        y = _transform(y, n, at, norm, True, "ifftn")
    return marked(y)


def rfftn(input: Any, s: Any = None, dim: Dim = None, norm: str | None = None) -> Tensor:
    """`rfft` along the last of several dimensions and `fft` along the others. `torch.fft.rfftn`."""
    x = _reals(input, "rfftn")
    *others, (n, last) = _several(x.array.ndim, s, dim, "rfftn")
    y: Tensor = without_mark(rfft(x, n, last, norm))
    for n, at in others:
        y = _transform(y, n, at, norm, False, "rfftn")
    return marked(y)


def irfftn(input: Any, s: Any = None, dim: Dim = None, norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`. `torch.fft.irfftn`."""
    y = _pairs(input, "irfftn")
    *others, (n, last) = _several(y.array.ndim - 1, s, dim, "irfftn")
    for m, at in others:
        y = _transform(y, m, at, norm, True, "irfftn")
    return irfft(marked(y), n, last, norm)


def hfftn(input: Any, s: Any = None, dim: Dim = None, norm: str | None = None) -> Tensor:
    """`hfft` along the last of several dimensions, after `fft` along the others. `torch.fft.hfftn`."""
    y = _pairs(input, "hfftn")
    *others, (n, last) = _several(y.array.ndim - 1, s, dim, "hfftn")
    for m, at in others:
        y = _transform(y, m, at, norm, False, "hfftn")
    return hfft(marked(y), n, last, norm)


def ihfftn(input: Any, s: Any = None, dim: Dim = None, norm: str | None = None) -> Tensor:
    """The inverse of `hfftn`. `torch.fft.ihfftn`."""
    x = _reals(input, "ihfftn")
    *others, (n, last) = _several(x.array.ndim, s, dim, "ihfftn")
    y: Tensor = without_mark(ihfft(x, n, last, norm))
    for m, at in others:
        y = _transform(y, m, at, norm, True, "ihfftn")
    return marked(y)


def hfft2(input: Any, s: Any = None, dim: Dim = (-2, -1), norm: str | None = None) -> Tensor:
    """`hfftn` along two dimensions. `torch.fft.hfft2`."""
    return hfftn(input, s, dim, norm)


def ihfft2(input: Any, s: Any = None, dim: Dim = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of `hfft2`. `torch.fft.ihfft2`."""
    return ihfftn(input, s, dim, norm)


def fft2(input: Any, s: Any = None, dim: Dim = (-2, -1), norm: str | None = None) -> Tensor:
    """`fft` along two dimensions. `torch.fft.fft2`."""
    return fftn(input, s, dim, norm)


def ifft2(input: Any, s: Any = None, dim: Dim = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of `fft2`. `torch.fft.ifft2`."""
    return ifftn(input, s, dim, norm)


def rfft2(input: Any, s: Any = None, dim: Dim = (-2, -1), norm: str | None = None) -> Tensor:
    """`rfftn` along two dimensions. `torch.fft.rfft2`."""
    return rfftn(input, s, dim, norm)


def irfft2(input: Any, s: Any = None, dim: Dim = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of `rfft2`. `torch.fft.irfft2`."""
    return irfftn(input, s, dim, norm)


def fftfreq(
    n: int, d: float = 1.0, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """The frequency of each of n places of `fft`, for samples at a distance d. `torch.fft.fftfreq`."""
    k = arange(0, n, dtype=dtype or get_default_dtype(), device=device)
    half = (n + 1) // 2
    made = cat([k[:half], k[half:] - n]) if n > 1 else k
    return _per_length(made, n, d).requires_grad_(requires_grad)


def rfftfreq(
    n: int, d: float = 1.0, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """The frequency of each of the n / 2 + 1 places of `rfft`. `torch.fft.rfftfreq`."""
    made = arange(0, n // 2 + 1, dtype=dtype or get_default_dtype(), device=device)
    return _per_length(made, n, d).requires_grad_(requires_grad)


def _per_length(places: Tensor, n: int, d: float) -> Tensor:
    # a size of a recording times a float would be a plain number
    return places / n / d if isinstance(n, SymInt) else places / (n * d)


def _rolled(input: Any, dim: Dim, back: bool) -> Tensor:
    x = without_mark(input)
    rank = x.array.ndim - is_marked(input)
    dims = list(range(rank)) if dim is None else [one_dim(d, rank) for d in ([dim] if isinstance(dim, int) else dim)]
    sizes = x.shape
    shifts = [-(sizes[d] // 2) if back else sizes[d] // 2 for d in dims]
    moved = roll(x, shifts, dims)
    return marked(moved) if is_marked(input) else moved


def fftshift(input: Any, dim: Dim = None) -> Tensor:
    """Frequency 0 in the middle of all dimensions, or of `dim`. `torch.fft.fftshift`."""
    return _rolled(input, dim, False)


def ifftshift(input: Any, dim: Dim = None) -> Tensor:
    """The inverse of `fftshift`. `torch.fft.ifftshift`."""
    return _rolled(input, dim, True)


with_keywords(
    globals(),
    (
        "fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn", "hfftn",
        "ihfftn", "hfft2", "ihfft2", "fft2", "ifft2", "rfft2", "irfft2", "fftfreq", "rfftfreq", "fftshift",
        "ifftshift",
    ),
    frozenset(("fftshift", "ifftshift")),
)  # fmt: skip
