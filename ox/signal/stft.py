"""Short-time Fourier transforms and the windows of `torch`: stft, istft, hann_window, ..."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import ops
from ox.core.constants import axes_tensor, scalar
from ox.core.symbolic import size_tensor
from ox.dtypes import DType, int64
from ox.errors import ArgumentError, ShapeError
from ox.fft import ifft, irfft
from ox.functions import narrow, squeeze, unsqueeze
from ox.functions.creation import ones
from ox.functions.keyword_arguments import factory_without_out
from ox.ops.signal.stft import frame_places, overlap_add, size_of
from ox.signal import windows
from ox.tensors.complex_pairs import view_as_complex, without_mark
from ox.tensors.tensor import Tensor


@factory_without_out
def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """1/2 - 1/2 cos(2πk/n). `torch.hann_window`."""
    return windows.hann(window_length, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad)


@factory_without_out
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - beta cos(2πk/n). `torch.hamming_window`."""
    return windows.general_cosine(
        window_length, a=(alpha, beta), sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad
    )


@factory_without_out
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """0.42 - 0.5 cos(2πk/n) + 0.08 cos(4πk/n). `torch.blackman_window`."""
    return windows.blackman(window_length, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad)


@factory_without_out
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle. `torch.bartlett_window`."""
    return windows.bartlett(window_length, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad)


@factory_without_out
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Kaiser's window, of Bessel functions. `torch.kaiser_window`."""
    return windows.kaiser(
        window_length, beta=beta, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad
    )


def _window(window: Any, n_fft: int, hop: int | None, length: int | None, like: Any, what: str) -> tuple[int, Any]:
    """The step, and the window padded with zeros on both sides to n_fft (None where it is all ones)."""
    length = n_fft if length is None else length
    hop = n_fft // 4 if hop is None else hop
    if n_fft < 1 or hop < 1 or not 1 <= length <= n_fft:
        raise ArgumentError(
            f"{what} takes n_fft and hop_length above 0, and a win_length of 1 to n_fft",
            got=f"n_fft {n_fft}, hop_length {hop}, win_length {length}",
        )
    if window is None and length == n_fft:
        return hop, None
    window = ones(length, dtype=like.array.dtype) if window is None else window
    if window.static_shape != (length,):
        raise ShapeError(
            f"{what} does not take this window", expected=f"[{length}]", got=str(list(window.static_shape))
        )
    left = (n_fft - length) // 2
    return hop, window if length == n_fft else ops.Pad(window, axes_tensor([left, n_fft - length - left]))


def stft(
    input: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Tensor:
    """The Fourier transforms of overlapping frames of real signals: [length] or [N, length] to [N, frequencies, frames,
    2], real and imaginary part last. `torch.stft`, ONNX STFT.

    Args:
        hop_length: from frame to frame, default n_fft / 4.
        center: frame t is centred at t·hop_length, the signal being padded by `pad_mode`.
        normalized: divide by sqrt(n_fft).
        onesided: the first n_fft / 2 + 1 frequencies alone (the default).
        return_complex: False, for there are no complex tensors.

    Raises:
        ArgumentError: `return_complex=True`.
        ShapeError: other dimensions, or a signal shorter than a frame.
    """
    if return_complex:
        raise ArgumentError(
            "stft gives no complex tensor, for ONNX operators have no complex numbers",
            expected="return_complex=False, which gives the pairs [..., 2] of real and imaginary part",
            got="return_complex=True",
            hint="the modulus of pairs p is p.square().sum(-1).sqrt(), the angle ox.atan2(p[..., 1], p[..., 0]);"
            " ox.view_as_real(p) is p, and ox.istft takes p",
        )
    if input.array.ndim not in (1, 2):
        raise ShapeError(
            "stft takes one signal or a batch of them",
            expected="[length] or [N, length]",
            got=str(list(input.static_shape)),
        )
    hop, weights = _window(window, n_fft, hop_length, win_length, input, "stft")
    x = input if input.array.ndim == 2 else unsqueeze(input, 0)
    if center:
        half = n_fft // 2
        modes = {"reflect": "reflect", "constant": "constant", "replicate": "edge", "circular": "wrap"}
        if pad_mode not in modes or (pad_mode == "reflect" and half >= x.static_shape[1]):
            raise ArgumentError(
                "stft cannot pad so",
                expected=f"a mode of {', '.join(modes)}; a signal longer than {half} to reflect",
                got=f"{pad_mode!r} for a length of {x.static_shape[1]}",
            )
        x = ops.Pad(x, axes_tensor([half, half]), None, axes_tensor([1]), mode=modes[pad_mode])
    if x.static_shape[1] < n_fft:
        raise ShapeError("the signal is shorter than a frame", expected=f"at least {n_fft}", got=str(x.static_shape[1]))
    half_only = onesided is None or onesided
    y = ops.STFT(unsqueeze(x, 2), scalar(hop, int64), weights, scalar(n_fft, int64), onesided=int(half_only))
    y = ops.Transpose(y, perm=[0, 2, 1, 3])
    if normalized:
        y = y * n_fft**-0.5
    return y if input.array.ndim == 2 else squeeze(y, 0)


def istft(
    input: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signals [N, length] whose `stft` with these arguments is [N, frequencies, frames, 2], as near as can be: the
    frames' inverse transforms, windowed again, added, and divided by the sum of the squared windows. `torch.istft`.

    Args:
        length: cut or padded to it; by default what the frames cover (without what `center` had padded).

    Raises:
        ShapeError: another number of frequencies than n_fft gives.
        ArgumentError: `return_complex`: the signals are real. Or the windows leave gaps.
    """
    input = without_mark(input)
    single = input.array.ndim == 3
    bins = n_fft // 2 + 1 if onesided is None or onesided else n_fft
    if input.array.ndim not in (3, 4) or input.static_shape[-1] != 2 or input.static_shape[-3] != bins:
        raise ShapeError(
            "istft does not take this spectrum",
            expected=f"[N, {bins}, frames, 2] or [{bins}, frames, 2]",
            got=str(list(input.static_shape)),
        )
    if return_complex:
        raise ArgumentError("istft gives real signals", hint="return_complex=False")
    hop, weights = _window(window, n_fft, hop_length, win_length, input, "istft")
    y = ops.Transpose(unsqueeze(input, 0) if single else input, perm=[0, 2, 1, 3])
    if normalized:
        y = y * n_fft**0.5
    y = view_as_complex(y)
    frames = irfft(y, n_fft) if bins != n_fft or n_fft < 3 else ifft(y).real
    if weights is not None:
        frames = frames * weights
    count = frames.shape[1]
    total = (count - 1) * hop + n_fft
    places = frame_places(size_of(frames, 1), scalar(n_fft, int64), scalar(hop, int64))
    signal = overlap_add(frames, places, total)
    squares = ones(n_fft, dtype=y.array.dtype) if weights is None else weights * weights
    spread = ops.Expand(squares, size_tensor([1, count, n_fft]))
    envelope = overlap_add(spread, places, total)
    start = n_fft // 2 if center else 0
    stop = total - start if length is None else start + length
    have = min(stop, total)
    signal, envelope = (narrow(part, 1, start, have - start) for part in (signal, envelope))
    if isinstance(envelope.array, np.ndarray) and not (np.abs(envelope.array) > 1e-11).all():
        raise ArgumentError(
            "the windows leave gaps that istft cannot fill",
            hint="a smaller hop_length, or center=True with a window that is 0 at its ends",
        )
    signal = signal / envelope
    if have < stop:
        signal = ops.Pad(signal, size_tensor([0, stop - have]), None, axes_tensor([1]))
    return squeeze(signal, 0) if single else signal
