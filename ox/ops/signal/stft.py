"""Signals: STFT HannWindow HammingWindow BlackmanWindow MelWeightMatrix."""

from collections.abc import Sequence

import numpy as np

from ox.core.constants import axes_tensor, number, zeros
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import T1, T2, T3, XP, Array, HostT1, HostT2, HostTind
from ox.core.upcast import downcast
from ox.dtypes import FLOATS, FROM_ONNX, HALF_TYPES, NUMERIC, float32, int32, int64, onnx_type
from ox.errors import ArgumentError, ShapeError
from ox.ops.elementwise.arithmetic import Add, Mul
from ox.ops.signal.dft import DFT

__all__ = ["STFT", "BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"]

INTEGER_TYPES = (int32, int64)


@operator("output", kind="signal", T1=FLOATS, Tind=INTEGER_TYPES, amp="float32", batching="each")
def STFT(
    xp: XP,
    signal: T1,
    frame_step: HostTind,
    window: T1 = None,
    frame_length: HostTind = None,
    *,
    onesided: int = 1,
) -> T1:
    """The Fourier transforms [N, frames, frequencies, 2] of the frames of a signal [N, length, 1] (or complex
    [N, length, 2], with `onesided` 0), each times a window [frame_length] and `frame_step` after the one before.
    ONNX STFT."""
    if signal.ndim != 3 or signal.shape[-1] not in (1, 2) or (onesided and signal.shape[-1] == 2):
        raise ShapeError(
            "STFT takes a signal of three dimensions",
            expected="[N, length, 1]" + ("" if onesided else " or [N, length, 2]"),
            got=str(list(signal.shape)),
        )
    step = int(frame_step.reshape(()))
    size = signal.shape[1] if frame_length is None and window is None else 0
    size = size or (len(window) if frame_length is None else int(frame_length.reshape(())))
    if step < 1 or not 1 <= size <= signal.shape[1] or (window is not None and window.shape != (size,)):
        raise ShapeError(
            f"STFT cannot take frames of {size} at a step of {step}",
            expected=f"a step above 0, frames of 1 to {signal.shape[1]} and a window of that size",
            got="no window" if window is None else f"a window {list(window.shape)}",
        )
    x, w = (a if a is None or a.dtype not in HALF_TYPES else a.astype(float32) for a in (signal, window))
    places = xp.arange(0, signal.shape[1] - size + 1, step)[:, None] + xp.arange(size)
    frames = x[:, places]
    if w is not None:
        frames = frames * w[:, None]
    if onesided:
        y = xp.fft.rfft(frames[..., 0], axis=2)
    else:
        y = xp.fft.fft(frames[..., 0] + (1j * frames[..., 1] if frames.shape[-1] == 2 else 0), axis=2)
    y = xp.stack([y.real, y.imag], -1)
    return downcast(y, signal.dtype) if signal.dtype in HALF_TYPES else y.astype(signal.dtype, copy=False)


def frame_places(count: TensorType, size: TensorBase, step: TensorBase) -> TensorType:
    """int64 [frames, size]: the index in the signal of each element of each frame; all arguments are int64 []."""
    zero, one = number(0, int64), number(1, int64)
    starts = Mul(OPS["Range"](zero, count, one), step)
    return Add(OPS["Unsqueeze"](starts, axes_tensor([1])), OPS["Range"](zero, size, one))


def overlap_add(frames: TensorType, places: TensorBase, length: int) -> TensorType:
    """[N, length] from frames [N, frames, size], added where they lie."""
    flat = OPS["Reshape"](frames, axes_tensor([0, -1]))
    index = OPS["Expand"](OPS["Reshape"](places, axes_tensor([1, -1])), OPS["Shape"](flat))
    return OPS["ScatterElements"](zeros([frames.shape[0], length], frames), index, flat, axis=1, reduction="add")


def size_of(x: TensorType, axis: int) -> TensorType:
    """One size as int64 []."""
    return OPS["Squeeze"](OPS["Shape"](x, start=axis, end=axis + 1), axes_tensor([0]))


def _as_int64(x: TensorType) -> TensorType:
    x = OPS["Reshape"](x, axes_tensor([]))
    return x if x.dtype == int64 else OPS["Cast"](x, to=onnx_type(int64))


@STFT.gradient("signal", "window")
def _(
    g: TensorBase,
    signal: TensorBase,
    frame_step: TensorBase,
    window: TensorBase | None,
    frame_length: TensorBase | None,
    needs: tuple[bool, bool],
) -> tuple[TensorBase | None, TensorBase | None]:
    if frame_length is not None:
        size = _as_int64(frame_length)
    else:
        size = size_of(signal, 1) if window is None else size_of(window, 0)
    # back through the transform: n times the inverse; frequencies that were left out have no cotangent
    back = Mul(DFT(g, size, inverse=1), OPS["Cast"](size, to=onnx_type(g.dtype)))
    if signal.static_shape[-1] == 1:
        back = OPS["Slice"](back, axes_tensor([0]), axes_tensor([1]), axes_tensor([3]))
    places = frame_places(size_of(g, 1), size, _as_int64(frame_step))
    to_signal = to_window = None
    if needs[0]:
        parts = back if window is None else Mul(back, OPS["Unsqueeze"](window, axes_tensor([1])))
        width = signal.static_shape[-1]
        split = OPS["Split"](parts, axis=-1, num_outputs=width, outputs=width) if width > 1 else [parts]
        added = [overlap_add(OPS["Squeeze"](p, axes_tensor([3])), places, signal.shape[1]) for p in split]
        to_signal = OPS["Concat"](*(OPS["Unsqueeze"](a, axes_tensor([2])) for a in added), axis=2)
    if needs[1]:
        frames = OPS["Gather"](signal, places, axis=1)
        to_window = OPS["ReduceSum"](Mul(frames, back), axes_tensor([0, 1, 3]), keepdims=0)
    return to_signal, to_window


def _window(size: Array, periodic: int, number: int, weights: Sequence[float]) -> Array:
    """A sum of cosines: weights[0] - weights[1] cos(2πk/n) + weights[2] cos(4πk/n) ..."""
    count = int(size.reshape(()))
    if count < 0:
        raise ArgumentError("a window has a size of 0 or more", got=str(count))
    with np.errstate(all="ignore"):  # a symmetric window of one element divides by 0: NaN, as the formula has it
        angle = 2 * np.pi * np.arange(count) / np.float64(count if periodic else count - 1)
    total = np.zeros(count)
    for i, weight in enumerate(weights):
        total += (-1) ** i * weight * np.cos(i * angle)
    return downcast(total, FROM_ONNX[number])


@operator("output", kind="creation", sized_by="size", T1=INTEGER_TYPES, T2=NUMERIC, batching="each")
def HannWindow(xp: XP, size: HostT1, *, output_datatype: int = 1, periodic: int = 1) -> T2:
    """1/2 - 1/2 cos(2πk/n), where n is the size, or the size less one if not `periodic`. ONNX HannWindow."""
    return _window(size, periodic, output_datatype, (0.5, 0.5))


@operator("output", kind="creation", sized_by="size", T1=INTEGER_TYPES, T2=NUMERIC, batching="each")
def HammingWindow(xp: XP, size: HostT1, *, output_datatype: int = 1, periodic: int = 1) -> T2:
    """25/46 - 21/46 cos(2πk/n), n as for `HannWindow`. ONNX HammingWindow."""
    return _window(size, periodic, output_datatype, (25 / 46, 21 / 46))


@operator("output", kind="creation", sized_by="size", T1=INTEGER_TYPES, T2=NUMERIC, batching="each")
def BlackmanWindow(xp: XP, size: HostT1, *, output_datatype: int = 1, periodic: int = 1) -> T2:
    """0.42 - 0.5 cos(2πk/n) + 0.08 cos(4πk/n), n as for `HannWindow`. ONNX BlackmanWindow."""
    return _window(size, periodic, output_datatype, (0.42, 0.5, 0.08))


@operator(
    "output",
    kind="creation",
    sized_by="num_mel_bins dft_length",
    T1=INTEGER_TYPES,
    T2=FLOATS,
    T3=NUMERIC,
    batching="each",
    nondifferentiable="lower_edge_hertz upper_edge_hertz",
)
def MelWeightMatrix(
    xp: XP,
    num_mel_bins: HostT1,
    dft_length: HostT1,
    sample_rate: HostT1,
    lower_edge_hertz: HostT2,
    upper_edge_hertz: HostT2,
    *,
    output_datatype: int = 1,
) -> T3:
    """[dft_length / 2 + 1, num_mel_bins]: the triangles, of peak 1, by which the frequencies of a spectrum add up to
    bands of equal width on the mel scale, 2595 log10(1 + hertz / 700). ONNX MelWeightMatrix."""
    bands, length, rate = (int(x.reshape(())) for x in (num_mel_bins, dft_length, sample_rate))
    low, high = (2595 * np.log10(1 + float(x.reshape(())) / 700) for x in (lower_edge_hertz, upper_edge_hertz))
    if bands < 0 or length < 1 or rate < 1:
        raise ArgumentError("MelWeightMatrix takes positive numbers", got=f"{bands} bands, {length}, {rate} hertz")
    edges = np.arange(bands + 2) * ((high - low) / (bands + 2)) + low
    places = ((length + 1) * (700 * (10 ** (edges / 2595) - 1)) // rate).astype(np.int64)
    matrix = np.zeros((length // 2 + 1, bands))
    rows = np.arange(len(matrix))
    for band in range(bands):
        start, centre, end = places[band : band + 3]
        rising = (rows - start) / (centre - start) if centre > start else 1.0 * (rows == centre)
        falling = (end - rows) / max(end - centre, 1)
        inside = (start <= rows) & (rows < max(end, centre + 1))
        matrix[:, band] = np.where(inside, np.where((rows < centre) | (end <= centre), rising, falling), 0)
    return downcast(matrix, FROM_ONNX[output_datatype])
