"""Fourier transforms: against NumPy's, there and back, and as files for any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import ox
from ox import fft
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model

X = np.random.default_rng(0).standard_normal((3, 8))


def complex_of(y: Any) -> Any:
    return y.detach().numpy()


def test_against_numpy() -> None:
    x = ox.tensor(X)
    assert np.allclose(complex_of(fft.rfft(x)), np.fft.rfft(X))
    assert np.allclose(complex_of(fft.fft(fft.complex(x))), np.fft.fft(X))
    assert np.allclose(complex_of(fft.fft(fft.complex(x, x * 2), 5, 0)), np.fft.fft(X + 2j * X, 5, 0))
    assert np.allclose(complex_of(fft.rfft2(x)), np.fft.rfft2(X))
    assert np.allclose(fft.fftfreq(5, 0.1).numpy(), np.fft.fftfreq(5, 0.1))
    assert np.allclose(fft.fftshift(x).numpy(), np.fft.fftshift(X))


def test_there_and_back() -> None:
    x = ox.tensor(X)
    for norm in ("backward", "ortho", "forward"):
        assert np.allclose(fft.irfft(fft.rfft(x, norm=norm), norm=norm).numpy(), X)
        assert np.allclose(fft.irfftn(fft.rfftn(x, norm=norm), norm=norm).numpy(), X)
        z = fft.complex(x, x * 3)
        assert np.allclose(fft.ifft2(fft.fft2(z, norm=norm), norm=norm).numpy(), z.numpy())
    assert np.allclose(fft.ifftshift(fft.fftshift(x)).numpy(), X)


def test_a_signal_is_restored() -> None:
    window = ox.hann_window(16, dtype=ox.float64)
    signal = ox.tensor(np.random.default_rng(1).standard_normal((2, 100)))
    spectrum = ox.stft(signal, 16, window=window)
    assert spectrum.shape == (2, 9, 26, 2)
    assert np.allclose(ox.istft(spectrum, 16, window=window).numpy(), signal.numpy())


def test_parsevals_theorem_and_its_gradient() -> None:
    x = ox.tensor(X, requires_grad=True)
    energy = (ox.view_as_real(fft.fft(fft.complex(x), norm="ortho")) ** 2).sum()
    assert np.allclose(energy.item(), (X**2).sum())
    energy.backward()
    assert np.allclose(x.grad.numpy(), 2 * X)


def test_windows_are_their_formulas() -> None:
    k = np.arange(8)
    assert np.allclose(ox.hann_window(8).numpy(), np.sin(np.pi * k / 8) ** 2, atol=1e-6)
    assert np.allclose(ox.bartlett_window(9, periodic=False).numpy(), np.bartlett(9))
    assert np.allclose(ox.kaiser_window(9, False, 5.0).numpy(), np.kaiser(9, 5.0))
    assert np.allclose(ox.signal.windows.blackman(9).numpy(), np.blackman(9), atol=1e-6)
    assert np.allclose(ox.signal.windows.hamming(9).numpy(), np.hamming(9))


@pytest.mark.parametrize("length", [8, 12, 7])
def test_a_file_takes_any_length(length: int) -> None:
    def filtered(x: Any) -> Any:
        return fft.irfft(fft.rfft(x, norm="ortho") * 0.5, x.shape[1], norm="ortho")

    graph = record(filtered, {"x": ox.tensor(X.astype(np.float32))}, dims={"x": ["n", "length"]})
    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString())
    other = np.random.default_rng(2).standard_normal((2, length)).astype(np.float32)
    assert np.allclose(session.run(None, {"x": other})[0], other * 0.5, atol=1e-5)


def test_refusals() -> None:
    with pytest.raises(DTypeError, match="real values"):
        fft.rfft(fft.rfft(ox.tensor(X)))
    with pytest.raises(ArgumentError, match="return_complex=False"):
        ox.stft(ox.tensor(X), 4, return_complex=True)
    with pytest.raises(ArgumentError, match="norm"):
        fft.rfft(ox.tensor(X), norm="sideways")
    with pytest.raises(ArgumentError, match="gaps"):
        ox.istft(ox.zeros(5, 4, 2), 8, 8, window=ox.hann_window(8), center=False)
    with pytest.raises(ShapeError, match="spectrum"):
        ox.istft(ox.zeros(6, 4, 2), 8)
