"""A whole usual call of RNN, GRU or LSTM on arrays: layouts, directions, lengths and half-width floats around the time
loops."""

from typing import Any

from ox.core.types import XP, Array
from ox.core.upcast import downcast
from ox.devices.gpu import index as cuda_index
from ox.devices.gpu.multi_tensor import is_on_device
from ox.dtypes import HALF_TYPES, float32
from ox.errors import ArgumentError
from ox.ops.recurrent.arguments import WRONG_LENGTH, Call, check_lens
from ox.ops.recurrent.gru_loops import gru, gru_backward
from ox.ops.recurrent.lstm_loops import lstm, lstm_backward
from ox.ops.recurrent.rnn_loops import Starts, Sums, rnn, rnn_backward


def wide(*arrays: Array | None) -> list[Any]:
    return [a.astype(float32) if a is not None and a.dtype in HALF_TYPES else a for a in arrays]


def to_time_first(this: Call, *arrays: Array | None) -> list[Any]:
    """Transposes between batch first and time (or direction) first, depending on `layout`."""
    if not this.layout:
        return list(arrays)
    return [None if a is None else a.transpose(1, 0, *range(2, a.ndim)) for a in arrays]


def alive(xp: XP, this: Call, lens: Array | None, steps: int) -> Array | None:
    """[T, N, 1]: which sequences have not ended; None where all go on to the last step, if that is known without
    waiting for a GPU."""
    if lens is None:
        return None
    if is_on_device(lens):
        cuda_index.check_range(lens, 0, steps, f"{this.kind} has {WRONG_LENGTH}", ArgumentError)
    else:
        check_lens(this.kind, lens, steps)
        if xp.all(lens == steps):
            return None
    return (xp.arange(steps)[:, None] < lens[None, :])[..., None]


def forward(
    xp: XP, this: Call, X: Array, W: Array, R: Array, B: Array | None, lens: Array | None, h: Array | None,
    c: Array | None,
) -> tuple[Array, ...]:  # fmt: skip
    """Y, Y_h and, but for RNN, the gates [directions, T, 4, N, H], 0 after a sequence's end; for LSTM Y_c before them
    and the cells [directions, T, N, H] behind."""
    dtype = X.dtype
    X, W, R, B, h, c = wide(X, W, R, B, h, c)
    X, h, c = to_time_first(this, X, h, c)
    (T, N, _), (D, _, H) = X.shape, R.shape
    living = alive(xp, this, lens, T)
    h = xp.zeros((D, N, H), X.dtype) if h is None else xp.ascontiguousarray(h)
    Y = xp.empty((T, D, N, H), X.dtype)
    gates: Any = None if this.kind == "RNN" else xp.empty((D, T, 4, N, H), X.dtype)
    cells: Any = None
    if this.kind == "LSTM":
        c = xp.zeros((D, N, H), X.dtype) if c is None else xp.ascontiguousarray(c)
        cells = xp.empty((D, T, N, H), X.dtype)
    last_h, last_c = h.copy(), None if c is None else c.copy()
    for d, reverse in enumerate(this.reverse):
        b = None if B is None else B[d]
        end = 0 if reverse else T - 1
        if this.kind == "LSTM":
            lstm(xp, X, W[d], R[d], b, h[d], c[d], living, reverse, Y[:, d], gates[d], cells[d])
        elif this.kind == "GRU":
            gru(xp, X, W[d], R[d], b, h[d], living, reverse, bool(this.flag), Y[:, d], gates[d])
        else:
            rnn(xp, X, W[d], R[d], b, h[d], living, reverse, this.activations[d][0].name, Y[:, d])
        if T:
            last_h[d] = Y[end, d]
            if last_c is not None:
                last_c[d] = cells[d, end]
    if living is not None:
        Y *= living[:, None]
    Y = Y.transpose(2, 0, 1, 3) if this.layout else Y
    last_h, last_c = to_time_first(this, last_h, last_c)
    made = [a for a in (Y, last_h, last_c, gates, cells) if a is not None]
    return tuple(downcast(a, dtype) if dtype in HALF_TYPES else a for a in made)


def backward(
    xp: XP, this: Call, X: Array, W: Array, R: Array, B: Array | None, lens: Array | None, h: Array | None,
    c: Array | None, gY: Array | None, gh: Array | None, gc: Array | None, Y: Array, gates: Array | None,
    cells: Array | None, to_x: bool,
) -> tuple[Array, ...]:  # fmt: skip
    """The gradients of W, R, B, h, c (LSTM) and, where wanted, X."""
    dtype = X.dtype
    if gates is None and this.kind != "RNN":
        gates, cells = (*forward(xp, this, X, W, R, B, lens, h, c)[-2 if this.kind == "LSTM" else -1 :], None)[:2]
    X, W, R, h, c, gY, gh, gc, Y, gates, cells = wide(X, W, R, h, c, gY, gh, gc, Y, gates, cells)
    X, h, c, gh, gc = to_time_first(this, X, h, c, gh, gc)
    if this.layout:
        Y, gY = Y.transpose(1, 2, 0, 3), None if gY is None else gY.transpose(1, 2, 0, 3)
    T = len(X)
    living = alive(xp, this, lens, T)
    dX = xp.empty(X.shape, X.dtype) if to_x else None
    none = xp.zeros((len(R), X.shape[1], R.shape[2]), X.dtype)
    h, c = none if h is None else h, none if c is None else c
    gh, gc = none if gh is None else gh, none if gc is None else gc
    made: list[list[Array]] = []
    states: Any
    for d, reverse in enumerate(this.reverse):
        sums = Sums(xp, X, W[d], R[d], dX, more=d > 0)
        starts = Starts(xp, Y[:, d], h[d], reverse, None if living is None else lens)
        g = None if gY is None else gY[:, d]
        if this.kind == "LSTM":
            states = lstm_backward(
                xp, sums, R[d], starts, c[d], living, reverse, gates[d], cells[d], g, gh[d], gc[d]
            )  # fmt: skip
        elif this.kind == "GRU":
            states = (gru_backward(xp, sums, R[d], starts, living, reverse, bool(this.flag), gates[d], g, gh[d]),)
        else:
            function = this.activations[d][0].name
            states = (rnn_backward(xp, sums, R[d], starts, living, reverse, function, Y[:, d], g, gh[d]),)
        made.append([sums.dW, sums.dR, sums.db, *states])
    dW, dR, db, *states = (parts[0][None] if len(parts) == 1 else xp.stack(parts) for parts in zip(*made, strict=True))
    result = [dW, dR, db, *to_time_first(this, *states), *(to_time_first(this, dX) if to_x else [])]
    return tuple(downcast(a, dtype) if dtype in HALF_TYPES else a for a in result)
