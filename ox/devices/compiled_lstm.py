"""An LSTM over time on the compiled kernels: float32, contiguous, without sequences that end earlier."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.devices import compiled
from ox.devices.compiled_matmul import product
from ox.dtypes import float32
from ox.kernels import Library, address


def library(xp: Any, X: Any, alive: Any) -> Library | None:
    """The kernels for a call on these inputs X [T, N, I], None where NumPy or CuPy does the work."""
    if xp is not np or alive is not None or X.dtype != float32 or not X.size:
        return None
    return compiled.library()


def _shape(Y: Any, reverse: bool) -> Any:
    """The numbers of ox::Lstm (lstm.h), in its order."""
    steps, samples, units = Y.shape
    return np.array([steps, samples, units, int(reverse), Y.strides[0] // 4], np.int64)


def forward(
    kernels: Library, X: Any, W: Any, R: Any, b: Any, h: Any, c: Any, reverse: bool, Y: Any, gates: Any, C: Any
) -> None:
    """Fill Y [T, N, H] (its steps may lie apart), gates i o f c [T, 4, N, H] and cells C [T, N, H]."""
    units = R.shape[1]
    bias = np.zeros(4 * units, np.float32) if b is None else b[: 4 * units] + b[4 * units :]
    totals = product(kernels, np.ascontiguousarray(X).reshape(-1, X.shape[2]), W.T, bias)
    R, h, c, shape = np.ascontiguousarray(R), np.ascontiguousarray(h), np.ascontiguousarray(c), _shape(Y, reverse)
    kernels.ox_lstm(
        address(shape), address(totals), address(R), address(h), address(c), address(Y), address(gates), address(C)
    )


def backward(
    kernels: Library, X: Any, W: Any, R: Any, Y: Any, h: Any, c: Any, reverse: bool, gates: Any, C: Any, gY: Any,
    dh: Any, dc: Any, to_x: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of W, R, both biases together, X (None unless wanted), and the first state and cell."""
    steps, samples, units = Y.shape
    R, c, dh, dc = (np.ascontiguousarray(a) for a in (R, c, dh, dc))
    if gY is not None and gY.strides != Y.strides:
        copied = np.empty_like(Y) if Y.flags.c_contiguous else np.lib.stride_tricks.as_strided(
            np.empty(steps * Y.strides[0] // 4, np.float32), Y.shape, Y.strides
        )  # fmt: skip
        copied[...] = gY
        gY = copied
    slopes = np.empty((steps, samples, 4 * units), np.float32)
    to_h, to_c, shape = np.empty_like(dh), np.empty_like(dc), _shape(Y, reverse)
    kernels.ox_lstm_backward(
        address(shape), address(R), address(c), address(gates), address(C), 0 if gY is None else address(gY),
        address(dh), address(dc), address(slopes), address(to_h), address(to_c),
    )  # fmt: skip
    starts = np.concatenate([Y[1:], h[None]] if reverse else [h[None], Y[:-1]])
    rows, inputs = slopes.reshape(-1, 4 * units), np.ascontiguousarray(X).reshape(-1, X.shape[2])
    to_weights = product(kernels, rows.T, inputs, None)
    to_recurrent = product(kernels, rows.T, starts.reshape(-1, units), None)
    to_inputs = product(kernels, rows, np.ascontiguousarray(W), None).reshape(X.shape) if to_x else None
    # not NumPy's product: the threads of its BLAS would wait actively for tens of milliseconds beside these kernels
    to_bias = product(kernels, np.ones((1, len(rows)), np.float32), rows, None)[0]
    return to_weights, to_recurrent, to_bias, to_inputs, to_h, to_c
