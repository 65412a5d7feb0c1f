"""What the time loops of RNN, GRU and LSTM on arrays share, and those of RNN.

A loop is for one direction and the usual activations. The products with the inputs are computed for some steps at a
time, in memory that stays in the cache and is used again: fresh memory costs as much as the arithmetic.

Shapes: X [T, N, I], W [k·H, I], R [k·H, H], b [2·k·H] or None, states [N, H], alive [T, N, 1] bool or None.
"""

from collections.abc import Iterator
from typing import Any

from ox.core.mode import MODE
from ox.core.types import XP, Array
from ox.devices.cpu_kernels import recurrent as compiled_recurrent
from ox.devices.gpu import recurrent as cuda_recurrent

ELEMENTS = 1 << 20  # of the products that are computed at once


def compiled(xp: XP, X: Array, R: Array) -> tuple[Any, Any] | None:
    """The module whose kernels do a call on these inputs and weights, and what they take first: a library, or the
    namespace of a GPU. None where this module's loops run."""
    if cuda_recurrent.serves(X, R.shape[1]):
        return cuda_recurrent, xp
    library = compiled_recurrent.library(xp, X) if MODE.get().executor is None else None
    return None if library is None else (compiled_recurrent, library)


def pieces(steps: int, reverse: bool, row: int) -> Iterator[range]:
    """The steps in the order of time, in ranges of so many that `row` elements a step stay in the cache."""
    size = max(1, ELEMENTS // max(row, 1))
    starts = range(0, steps, size)
    for low in reversed(starts) if reverse else starts:
        high = min(low + size, steps)
        yield range(high - 1, low - 1, -1) if reverse else range(low, high)


def bounds(piece: range) -> tuple[int, int]:
    return min(piece), max(piece) + 1


def projected(xp: XP, X: Array, W: Array, b: Array | None, reverse: bool) -> Iterator[tuple[int, Array]]:
    """Each step in the order of time with its X[t] W' + b, which may be overwritten."""
    (T, N, size), rows = X.shape, W.shape[0]
    steps = list(pieces(T, reverse, N * rows))
    sums = xp.empty((max([len(piece) for piece in steps], default=0), N, rows), X.dtype)
    for piece in steps:
        low, high = bounds(piece)
        sums_of_part = sums[: high - low]
        xp.matmul(X[low:high].reshape(-1, size), W.T, out=sums_of_part.reshape(-1, rows))
        if b is not None:
            sums_of_part += b
        for t in piece:
            yield t, sums_of_part[t - low]


def sigmoid(xp: XP, x: Array) -> None:
    """In place. An exponential that is infinite gives the right 0."""
    xp.negative(x, out=x)
    xp.exp(x, out=x)
    x += 1
    xp.reciprocal(x, out=x)


def keep_ended(xp: XP, alive: Array | None, t: int, state: Array, before: Array) -> None:
    """Sequences that have ended keep their state."""
    if alive is not None:
        xp.copyto(state, before, where=~alive[t])


def clear_ended(alive: Array | None, gates: Array) -> None:
    """Those [T, 4, N, H] of sequences that have ended are 0."""
    if alive is not None:
        gates *= alive[:, None]


class Starts:
    """The state that each step began with, from the states Y [T, N, H] after the steps (0 after a sequence's end)."""

    def __init__(self, xp: XP, Y: Array, first: Array, reverse: bool, lens: Array | None) -> None:
        self.xp, self.Y, self.first, self.reverse = xp, Y, first, reverse
        self.lens = lens if reverse else None  # in reverse a sequence begins at its own end

    def at(self, t: int) -> Array:
        last = t + 1 if self.reverse else t - 1
        if not 0 <= last < len(self.Y):
            return self.first
        if self.lens is None:
            return self.Y[last]
        return self.xp.where((t >= self.lens - 1)[:, None], self.first, self.Y[last])


class Sums:
    """The gradients of the weights, and of X where wanted, from the cotangents of the products a piece at a time."""

    def __init__(self, xp: XP, X: Array, W: Array, R: Array, dX: Array | None, *, more: bool) -> None:
        """`more`: dX holds what another direction gave it already."""
        self.xp, self.X, self.W, self.dX, self.more = xp, X, W, dX, more
        self.dW, self.dR = xp.zeros_like(W), xp.zeros_like(R)
        self.db = xp.zeros(2 * len(W), W.dtype)

    def scratch(self, steps: list[range], width: int) -> Array:
        """[the most steps of a piece, N, width]."""
        most = max([len(piece) for piece in steps], default=0)
        return self.xp.empty((most, self.X.shape[1], width), self.X.dtype)

    def add_whole(self, to_w: Array, to_r: Array, to_outer: Array, to_inner: Array, to_x: Array | None) -> None:
        """The gradients of W, R, the biases of inputs and states, and X, computed of all steps at once."""
        self.dW, self.dR = to_w, to_r
        self.db[: len(to_outer)], self.db[len(to_outer) :] = to_outer, to_inner
        if self.dX is not None and to_x is not None:
            self.dX[...] = self.dX + to_x if self.more else to_x

    def add(self, piece: range, to_inputs: Array, to_states: Array, states: Array) -> None:
        """Cotangents [steps, N, k·H] of the products with X and with the states [steps, N, H]; what lies behind the
        piece's steps is left out."""
        xp = self.xp
        low, high = bounds(piece)
        n, width = high - low, to_inputs.shape[-1]
        rows, others = to_inputs[:n].reshape(-1, width), to_states[:n].reshape(-1, width)
        self.dW += xp.matmul(rows.T, self.X[low:high].reshape(len(rows), self.X.shape[2]))
        self.dR += xp.matmul(others.T, states[:n].reshape(len(rows), states.shape[2]))
        ones = xp.ones(len(rows), rows.dtype)
        sums = xp.matmul(ones, rows)
        self.db[:width] += sums
        self.db[width:] += sums if to_states is to_inputs else xp.matmul(ones, others)
        if self.dX is not None:
            part = self.dX[low:high].reshape(len(rows), self.dX.shape[2])
            if self.more:
                part += xp.matmul(rows, self.W)
            else:
                xp.matmul(rows, self.W, out=part)


def rnn(
    xp: XP, X: Array, W: Array, R: Array, b: Array | None, h: Array, alive: Array | None, reverse: bool,
    function: str, Y: Array,
) -> None:  # fmt: skip
    """Fill Y [T, N, H], held after a sequence's end."""
    if (loaded := compiled(xp, X, R)) is not None:
        kernels, first = loaded
        kernels.rnn(first, X, W, R, b, h, alive, reverse, function, Y)
        return
    H = R.shape[1]
    for t, total in projected(xp, X, W, None if b is None else b[:H] + b[H:], reverse):
        y = Y[t]
        xp.matmul(h, R.T, out=y)
        y += total
        if function == "tanh":
            xp.tanh(y, out=y)
        elif function == "relu":
            xp.maximum(y, 0, out=y)
        else:
            sigmoid(xp, y)
        keep_ended(xp, alive, t, y, h)
        h = y


def rnn_backward(
    xp: XP, sums: Sums, R: Array, starts: Starts, alive: Array | None, reverse: bool, function: str,
    Y: Array, gY: Array | None, dh: Array,
) -> Array:  # fmt: skip
    """Add up the weights' gradients; the cotangent of the first state from that of the last."""
    if (loaded := compiled(xp, sums.X, R)) is not None:
        kernels, first = loaded
        *to_weights, to_h = kernels.rnn_backward(
            first, sums.X, sums.W, R, Y, starts.first, alive, reverse, function, gY, dh, sums.dX is not None
        )
        sums.add_whole(*to_weights)
        return to_h
    T, N, H = Y.shape
    steps = list(pieces(T, not reverse, N * H))
    dZ, before = sums.scratch(steps, H), sums.scratch(steps, H)
    for piece in steps:
        for t in piece:
            y, d = Y[t], dZ[t - min(piece)]
            before[t - min(piece)] = starts.at(t)
            total = dh if gY is None else dh + gY[t]
            slope: Any = 1 - y * y if function == "tanh" else y > 0 if function == "relu" else y * (1 - y)
            xp.multiply(total, slope, out=d)
            if alive is not None:
                d *= alive[t]
            dh_before = xp.matmul(d, R)
            dh = dh_before if alive is None else xp.where(alive[t], dh_before, dh)
        sums.add(piece, dZ, dZ, before)
    return dh
