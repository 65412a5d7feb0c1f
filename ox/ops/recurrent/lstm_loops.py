"""The time loops of LSTM on arrays, for one direction; shapes as in `ox.ops.recurrent.rnn_loops`.

NumPy is three times as fast on arrays without gaps, so the four gates lie one behind the other, [T, 4, N, H], and
nothing in a loop makes new memory.
"""

from ox.core.types import XP, Array
from ox.ops.recurrent.rnn_loops import Starts, Sums, clear_ended, compiled, keep_ended, pieces, projected


def lstm(
    xp: XP, X: Array, W: Array, R: Array, b: Array | None, h: Array, c: Array, alive: Array | None, reverse: bool,
    Y: Array, gates: Array, C: Array,
) -> None:  # fmt: skip
    """Fill Y [T, N, H] (held, not zeroed, after a sequence's end), gates i o f c [T, 4, N, H] (0 there) and cells C
    [T, N, H]."""
    if (loaded := compiled(xp, X, R)) is not None:
        kernels, first = loaded
        kernels.lstm(first, X, W, R, b, h, c, alive, reverse, Y, gates, C)
        return
    N, H = h.shape
    # sigmoid(x) = tanh(x / 2) / 2 + 1 / 2: with the halves in the weights, one tanh serves all four gates
    half = xp.ones((4, 1), X.dtype)
    half[:3] = 0.5
    column = xp.repeat(half, H, axis=0)
    Rt = xp.ascontiguousarray((R * column).T)
    bias = None if b is None else (b[: 4 * H] + b[4 * H :]) * column[:, 0]
    product, work = xp.empty((N, 4 * H), X.dtype), xp.empty_like(h)
    turned = product.reshape(N, 4, H).transpose(1, 0, 2)
    for t, total in projected(xp, X, W * column, bias, reverse):
        z, y, cell = gates[t], Y[t], C[t]
        xp.matmul(h, Rt, out=product)
        product += total
        xp.tanh(product, out=product)
        xp.multiply(turned, half[:, None], out=z)
        z[:3] += 0.5
        xp.multiply(z[2], c, out=cell)
        xp.multiply(z[0], z[3], out=work)
        cell += work
        keep_ended(xp, alive, t, cell, c)
        xp.tanh(cell, out=y)
        y *= z[1]
        keep_ended(xp, alive, t, y, h)
        h, c = y, cell
    clear_ended(alive, gates)


def lstm_backward(
    xp: XP, sums: Sums, R: Array, starts: Starts, c: Array, alive: Array | None, reverse: bool,
    gates: Array, C: Array, gY: Array | None, dh: Array, dc: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Add up the weights' gradients; the cotangents of the first states from those of the last."""
    T, _, N, H = gates.shape
    if (loaded := compiled(xp, sums.X, R)) is not None:
        kernels, first = loaded
        *to_weights, to_h, to_c = kernels.lstm_backward(
            first, sums.X, sums.W, R, starts.Y, starts.first, c, alive, reverse, gates, C, gY, dh, dc,
            sums.dX is not None,
        )  # fmt: skip
        sums.add_whole(*to_weights)
        return to_h, to_c
    dh, dc = dh.copy(), dc.copy()
    total, slope, scratch, dh_before = (xp.empty_like(dh) for _ in range(4))
    d, inner = xp.empty((4, N, H), gates.dtype), xp.empty((3, N, H), gates.dtype)
    steps = list(pieces(T, not reverse, 4 * N * H))
    dZ, before = sums.scratch(steps, 4 * H), sums.scratch(steps, H)
    for piece in steps:
        for t in piece:
            z, last, row = gates[t], t + 1 if reverse else t - 1, dZ[t - min(piece)]
            start = C[last] if 0 <= last < T else c
            before[t - min(piece)] = starts.at(t)
            if gY is None:
                total = dh
            else:
                xp.add(dh, gY[t], out=total)
            xp.tanh(C[t], out=scratch)
            # towards the cell: dc + dh o (1 - tanh(c)²)
            xp.multiply(total, scratch, out=d[1])
            xp.multiply(scratch, scratch, out=slope)
            xp.subtract(1, slope, out=slope)
            slope *= z[1]
            slope *= total
            slope += dc
            xp.multiply(slope, z[3], out=d[0])
            xp.multiply(slope, start, out=d[2])
            xp.multiply(slope, z[0], out=d[3])
            # through the sigmoids of i, o, f and the tanh of c
            xp.subtract(1, z[:3], out=inner)
            inner *= z[:3]
            d[:3] *= inner
            xp.multiply(z[3], z[3], out=scratch)
            xp.subtract(1, scratch, out=scratch)
            d[3] *= scratch
            if alive is not None:
                d *= alive[t]
            xp.copyto(row.reshape(N, 4, H), d.transpose(1, 0, 2))
            slope *= z[2]
            if alive is None:
                dc, slope = slope, dc
                xp.matmul(row, R, out=dh)
            else:
                xp.copyto(dc, slope, where=alive[t])
                xp.matmul(row, R, out=dh_before)
                xp.copyto(dh, dh_before, where=alive[t])
        sums.add(piece, dZ, dZ, before)
    return dh, dc
