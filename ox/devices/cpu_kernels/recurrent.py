"""RNN, GRU and LSTM over time on the compiled kernels, for one direction: float32.

Shapes: X [T, N, I], W [k·H, I], R [k·H, H], b [2·k·H] or None, states [N, H]; states over time [T, N, H], whose steps
may lie apart. `alive` [T, N, 1] bool or None: False once a sample has ended; it keeps its state, and its gates are 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.devices.cpu_kernels import kernel_table as compiled
from ox.devices.cpu_kernels.matmul import product
from ox.devices.summation import sum_over
from ox.dtypes import float32
from ox.kernels import Library, address

FUNCTIONS = {"tanh": 0, "relu": 1, "sigmoid": 2}  # as in rnn.h


def library(xp: Any, X: Any) -> Library | None:
    """The kernels for a call on these inputs X [T, N, I], None where NumPy or CuPy does the work."""
    return compiled.library() if xp is np and X.dtype == float32 and X.size else None


def serves(kind: str, arrays: list[Any], attributes: dict[str, Any]) -> bool:
    """Whether the kernels do a whole call of RNN, GRU or LSTM, faster than ONNX Runtime."""
    if library(np, arrays[0]) is None or attributes.get("clip") is not None:
        return False
    activations = attributes.get("activations")
    if kind == "RNN":
        return activations is None or all(name.lower() in FUNCTIONS for name in activations)
    if kind == "GRU":
        return activations is None and bool(attributes.get("linear_before_reset"))
    return activations is None and not attributes.get("input_forget") and all(a is None for a in arrays[7:])


def _lengths(alive: Any) -> Any:
    """int64 [N], the steps of each sample; None where none ends before the last one."""
    return None if alive is None else np.count_nonzero(alive[:, :, 0], axis=0).astype(np.int64)


def _place(a: Any) -> int:
    return 0 if a is None else address(a)


def _over_time(a: Any) -> Any:
    """With the numbers of a step in a row; None stays."""
    if a is None or (a[0].flags.c_contiguous and a.strides[0] >= 0 and a.strides[0] % 4 == 0):
        return a
    return np.ascontiguousarray(a)


def _shape(states: Any, reverse: bool, gradient: Any = None, function: str = "tanh") -> Any:
    """The numbers of ox::Recurrence (recurrent.h), in its order."""
    apart = [0 if a is None else a.strides[0] // 4 for a in (states, gradient)]
    return np.array([*states.shape, int(reverse), *apart, FUNCTIONS[function]], np.int64)


def _totals(kernels: Library, X: Any, W: Any, bias: Any) -> Any:
    """The inputs' part of all products, [T·N, k·H]."""
    bias = np.zeros(len(W), np.float32) if bias is None else np.ascontiguousarray(bias)
    return product(kernels, np.ascontiguousarray(X).reshape(-1, X.shape[2]), np.ascontiguousarray(W).T, bias)


def _both(b: Any) -> Any:
    """The sum of the biases of inputs and states."""
    return None if b is None else b[: len(b) // 2] + b[len(b) // 2 :]


def _to_weights(
    kernels: Library, X: Any, W: Any, Y: Any, h: Any, reverse: bool, lengths: Any, to_inputs: Any, to_states: Any,
    to_x: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of W, R and X (None unless wanted) from those of the products, [T·N, k·H]."""
    starts = np.concatenate([Y[1:], h[None]] if reverse else [h[None], Y[:-1]])
    if reverse and lengths is not None:  # a sequence begins at its own end
        np.copyto(starts, h, where=(np.arange(len(Y))[:, None] >= lengths - 1)[..., None])
    inputs = np.ascontiguousarray(X).reshape(-1, X.shape[2])
    to_w = product(kernels, to_inputs.T, inputs, None)
    to_r = product(kernels, to_states.T, starts.reshape(-1, starts.shape[2]), None)
    made = product(kernels, to_inputs, np.ascontiguousarray(W), None).reshape(X.shape) if to_x else None
    return to_w, to_r, made


def lstm(
    kernels: Library, X: Any, W: Any, R: Any, b: Any, h: Any, c: Any, alive: Any, reverse: bool, Y: Any, gates: Any,
    C: Any,
) -> None:  # fmt: skip
    """Fill Y, gates i o f c [T, 4, N, H] and cells C [T, N, H]."""
    totals = _totals(kernels, X, W, _both(b))
    R, h, c, shape = np.ascontiguousarray(R), np.ascontiguousarray(h), np.ascontiguousarray(c), _shape(Y, reverse)
    lengths = _lengths(alive)
    kernels.ox_lstm(
        address(shape), address(totals), address(R), address(h), address(c), _place(lengths), address(Y),
        address(gates), address(C),
    )  # fmt: skip


def lstm_backward(
    kernels: Library, X: Any, W: Any, R: Any, Y: Any, h: Any, c: Any, alive: Any, reverse: bool, gates: Any, C: Any,
    gY: Any, dh: Any, dc: Any, to_x: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of W, R, the bias of inputs, that of states, X (None unless wanted), the first state and cell."""
    Y, gY, lengths = _over_time(Y), _over_time(gY), _lengths(alive)
    R, h, c, dh, gates, C = (np.ascontiguousarray(a) for a in (R, h, c, dh, gates, C))
    slopes = np.empty((Y.shape[0] * Y.shape[1], len(R)), np.float32)
    to_h, to_c, shape = np.empty_like(dh), np.array(dc, np.float32, order="C"), _shape(Y, reverse, gY)
    kernels.ox_lstm_backward(
        address(shape), address(R), address(c), _place(lengths), address(gates), address(C), _place(gY), address(dh),
        address(slopes), address(to_h), address(to_c),
    )  # fmt: skip
    to_w, to_r, made = _to_weights(kernels, X, W, Y, h, reverse, lengths, slopes, slopes, to_x)
    to_b = sum_over(np, slopes, (0,))
    return to_w, to_r, to_b, to_b, made, to_h, to_c


def gru(
    kernels: Library, X: Any, W: Any, R: Any, b: Any, h: Any, alive: Any, reverse: bool, Y: Any, gates: Any
) -> None:
    """Fill Y and the gates z r n q [T, 4, N, H] of a GRU whose reset multiplies the product with the state, q."""
    units, bias, inner = R.shape[1], None, None
    if b is not None:
        bias, inner = b[: 3 * units].copy(), np.ascontiguousarray(b[5 * units :])
        bias[: 2 * units] += b[3 * units : 5 * units]
    totals = _totals(kernels, X, W, bias)
    R, h, shape = np.ascontiguousarray(R), np.ascontiguousarray(h), _shape(Y, reverse)
    lengths = _lengths(alive)
    kernels.ox_gru(
        address(shape), address(totals), _place(inner), address(R), address(h), _place(lengths), address(Y),
        address(gates),
    )  # fmt: skip


def gru_backward(
    kernels: Library, X: Any, W: Any, R: Any, Y: Any, h: Any, alive: Any, reverse: bool, gates: Any, gY: Any,
    dh: Any, to_x: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of W, R, the bias of inputs, that of states, X (None unless wanted), and the first state."""
    units = R.shape[1]
    Y, gY, lengths = _over_time(Y), _over_time(gY), _lengths(alive)
    R, h, dh, gates = (np.ascontiguousarray(a) for a in (R, h, dh, gates))
    slopes = np.empty((Y.shape[0] * Y.shape[1], 4 * units), np.float32)  # n z r q
    to_h, shape = np.empty_like(dh), _shape(Y, reverse, gY)
    kernels.ox_gru_backward(
        address(shape), address(R), address(h), _place(lengths), address(Y), address(gates), _place(gY), address(dh),
        address(slopes), address(to_h),
    )  # fmt: skip
    turned = np.concatenate([W[2 * units :], W[: 2 * units]])
    to_w, to_r, made = _to_weights(
        kernels, X, turned, Y, h, reverse, lengths, slopes[:, : 3 * units], slopes[:, units:], to_x
    )
    sums = sum_over(np, slopes, (0,))
    back = np.concatenate([to_w[units:], to_w[:units]])
    return back, to_r, np.concatenate([sums[units : 3 * units], sums[:units]]), sums[units:], made, to_h


def rnn(
    kernels: Library, X: Any, W: Any, R: Any, b: Any, h: Any, alive: Any, reverse: bool, function: str, Y: Any
) -> None:
    """Fill Y of a plain RNN of tanh, relu or sigmoid."""
    totals = _totals(kernels, X, W, _both(b))
    R, h, shape = np.ascontiguousarray(R), np.ascontiguousarray(h), _shape(Y, reverse, None, function)
    lengths = _lengths(alive)
    kernels.ox_rnn(address(shape), address(totals), address(R), address(h), _place(lengths), address(Y))


def rnn_backward(
    kernels: Library, X: Any, W: Any, R: Any, Y: Any, h: Any, alive: Any, reverse: bool, function: str, gY: Any,
    dh: Any, to_x: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of W, R, the bias of inputs, that of states, X (None unless wanted), and the first state."""
    Y, gY, lengths = _over_time(Y), _over_time(gY), _lengths(alive)
    R, h, dh = (np.ascontiguousarray(a) for a in (R, h, dh))
    slopes = np.empty((Y.shape[0] * Y.shape[1], len(R)), np.float32)
    to_h, shape = np.empty_like(dh), _shape(Y, reverse, gY, function)
    kernels.ox_rnn_backward(
        address(shape), address(R), _place(lengths), address(Y), _place(gY), address(dh), address(slopes),
        address(to_h),
    )  # fmt: skip
    to_w, to_r, made = _to_weights(kernels, X, W, Y, h, reverse, lengths, slopes, slopes, to_x)
    to_b = sum_over(np, slopes, (0,))
    return to_w, to_r, to_b, to_b, made, to_h
