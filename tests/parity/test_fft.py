"""Fourier transforms and windows in ox and in PyTorch: complex tensors here are pairs there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sides import assert_same, torch

import ox

_random = np.random.default_rng(0)
REAL, PAIRS = _random.standard_normal((3, 4, 5)), _random.standard_normal((3, 4, 5, 2))
SIGNAL = _random.standard_normal((2, 40))

# what takes real values, and what takes complex ones; f is the module
OF_REAL = """
f.rfft(x); f.rfft(x, n=3); f.rfft(x, 8, norm="ortho"); f.rfft(x, dim=0, norm="forward"); f.rfft(x, 1, 1)
f.ihfft(x); f.ihfft(x, 7, 1, "ortho"); f.ihfft(x, norm="forward")
f.ihfft2(x); f.ihfft2(x, (3, 7), norm="ortho"); f.ihfftn(x, norm="forward"); f.ihfftn(x, (4,), (1,))
f.rfft2(x); f.rfft2(x, (3, 6), norm="ortho"); f.rfft2(x, dim=(0, 1)); f.rfftn(x); f.rfftn(x, (2, -1), dim=(2, 0))
f.rfftn(x, (3,), norm="forward")
f.fftshift(x); f.fftshift(x, 1); f.ifftshift(x, (0, 2)); f.ifftshift(x)
"""
OF_PAIRS = """
f.fft(z); f.fft(z, 3); f.fft(z, 9, 1); f.fft(z, dim=0, norm="ortho"); f.fft(z, norm="forward"); f.fft(z, 1)
f.ifft(z); f.ifft(z, 3, -2); f.ifft(z, 8, 0, "ortho"); f.ifft(z, norm="forward")
f.irfft(z); f.irfft(z, 9); f.irfft(z, 5, 1); f.irfft(z, 14, 0, "ortho"); f.irfft(z, norm="forward"); f.irfft(z, 1)
f.hfft(z); f.hfft(z, 7); f.hfft(z, 4, 1, "ortho"); f.hfft(z, norm="forward")
f.fft2(z); f.fft2(z, (2, 7)); f.fft2(z, dim=(0, 2), norm="ortho"); f.ifft2(z); f.ifft2(z, norm="forward")
f.irfft2(z); f.irfft2(z, (4, 4)); f.fftn(z); f.fftn(z, (2, 3)); f.fftn(z, dim=1); f.ifftn(z, norm="ortho")
f.irfftn(z); f.irfftn(z, (3, 4, 6)); f.irfftn(z, dim=(1, 0), norm="ortho")
f.fftshift(z, 1); f.fftshift(z, (0, 1, 2)); f.ifftshift(z, (0, 2)); f.fftshift(z); f.ifftshift(z, -1)
f.fft(x); f.fft(x, 3, 0, "ortho"); f.ifft(x, 9); f.irfft(x); f.hfft(x, 7); f.fft2(x); f.ifftn(x)
f.hfft2(z); f.hfft2(z, (3, 7), norm="ortho"); f.hfftn(z); f.hfftn(z, (2, 5), (2, 0), "forward")
"""
NUMBERS = "f.fftfreq(5); f.fftfreq(8, 0.5); f.fftfreq(1); f.rfftfreq(5); f.rfftfreq(8, 2.0)"
SPECTRA = """
T.stft(s, 8, window=w, return_complex=False); T.stft(s[0], 8, 3, return_complex=False)
T.stft(s, 9, 2, 8, w, center=False, return_complex=False); T.stft(s, 12, 5, 8, w, normalized=True, return_complex=False)
T.stft(s, 8, 4, onesided=False, window=w, return_complex=False)
T.stft(s, 8, pad_mode="constant", window=w, return_complex=False)
T.stft(s, 8, pad_mode="replicate", return_complex=False)
"""
RESTORED = """
T.istft(c(T.stft(s, 8, window=w, return_complex=False)), 8, window=w)
T.istft(c(T.stft(s[1], 8, 2, window=w, return_complex=False)), 8, 2, window=w, length=37)
T.istft(c(T.stft(s, 8, 4, center=False, return_complex=False)), 8, 4, center=False)
T.istft(c(T.stft(s, 9, 2, 8, w, normalized=True, return_complex=False)), 9, 2, 8, w, normalized=True, length=38)
T.istft(c(T.stft(s, 8, 4, center=False, return_complex=False)), 8, 4, center=False, length=45)
T.istft(c(T.stft(s, 8, 2, window=w, onesided=False, return_complex=False)), 8, 2, window=w, onesided=False)
"""
WINDOWS = """
T.hann_window(7); T.hann_window(7, False); T.hann_window(1); T.hann_window(0); T.hamming_window(6)
T.hamming_window(6, False, 0.6, 0.3); T.blackman_window(8); T.blackman_window(5, periodic=False)
T.bartlett_window(6); T.bartlett_window(7, False); T.kaiser_window(8); T.kaiser_window(7, False, 5.0)
w.hann(7); w.hann(7, sym=False); w.hamming(8); w.blackman(9, sym=False); w.nuttall(6); w.cosine(7)
w.cosine(7, sym=False)
w.bartlett(7); w.exponential(7, tau=2.0); w.exponential(7, center=1.0, sym=False); w.exponential(6, sym=False)
w.gaussian(7, std=2.0); w.gaussian(6, std=2.0, sym=False); w.kaiser(8, beta=3.0); w.kaiser(8, sym=False)
w.general_hamming(7, alpha=0.6); w.general_cosine(8, a=[0.4, 0.3, 0.3], sym=False)
"""


def parts(text: str) -> list[str]:
    return [p.strip() for line in text.splitlines() for p in line.split("; ") if p.strip()]


def shown(T: Any, value: Any) -> Any:
    return T.view_as_real(value.resolve_conj()) if value.is_complex() else value


def compare(expression: str, kind: Any = np.float64) -> None:
    """Values, and for float64 the gradients of first and second order."""
    found = []
    for T in (ox, torch):
        given = {n: T.tensor(a.astype(kind), requires_grad=True) for n, a in (("x", REAL), ("z", PAIRS), ("s", SIGNAL))}
        window = T.hann_window(8, dtype=getattr(T, np.dtype(kind).name), requires_grad=True)
        leaves = [*given.values(), window]
        given["z"] = T.view_as_complex(given["z"])
        y = shown(T, eval(expression, {**given, "w": window, "T": T, "f": T.fft, "c": T.view_as_complex}))
        weights = T.tensor(np.cos(np.arange(y.numel())).reshape(tuple(y.shape)).astype(kind))
        first = T.autograd.grad((y * y * weights).sum(), leaves, create_graph=True, allow_unused=True)
        total = sum((g * g).sum() for g in first if g is not None)
        second = T.autograd.grad(total, leaves, allow_unused=True)
        found.append((y, *[g for g in first if g is not None], *[g for g in second if g is not None]))
    narrow = kind == np.float32
    assert_same(*found, 1e-3 if narrow else 1e-7, 1e-2 if narrow else 1e-7)


@pytest.mark.parametrize("expression", parts(OF_REAL + OF_PAIRS + SPECTRA + RESTORED))
@pytest.mark.filterwarnings("ignore")
def test_transforms(expression: str) -> None:
    compare(expression)


@pytest.mark.parametrize("expression", parts(OF_REAL + OF_PAIRS)[::5])
def test_float32(expression: str) -> None:
    compare(expression, np.float32)


@pytest.mark.parametrize("expression", parts(NUMBERS))
def test_frequencies(expression: str) -> None:
    assert_same(*(eval(expression, {"f": T.fft}) for T in (ox, torch)))


@pytest.mark.parametrize("expression", parts(WINDOWS))
def test_windows(expression: str) -> None:
    import torch.signal

    assert_same(*(eval(expression, {"T": T, "w": T.signal.windows}) for T in (ox, torch)), 1e-5, 1e-6)


@pytest.mark.parametrize(
    "expression",
    [
        "f.fft(z, 0)", "f.rfft(x, -1)", "f.fft(z, dim=3)", "f.fft(z, norm='sideways')", "f.fftn(z, dim=(0, 0))",
        "f.fftn(z, (2, 2), (0,))", "f.rfftn(x, (2, 2, 2, 2))", "T.stft(s, 100, return_complex=False)",
        "T.stft(s, 8, 0, return_complex=False)", "T.stft(s, 8, win_length=9, return_complex=False)",
        "T.stft(s, 8, window=T.ones(5), return_complex=False)", "T.hann_window(-1)",
    ],
)  # fmt: skip
def test_refusals(expression: str) -> None:
    for T in (ox, torch):
        z = T.tensor(PAIRS)
        given = {"x": T.tensor(REAL), "z": T.view_as_complex(z), "s": T.tensor(SIGNAL)}
        with pytest.raises((RuntimeError, ValueError, IndexError)):
            eval(expression, {**given, "T": T, "f": T.fft})
