"""The time loops of GRU on arrays, for one direction; shapes as in `ox.ops.recurrent.rnn_loops`."""

from ox.core.types import XP, Array
from ox.devices.gpu import recurrent as cuda_recurrent
from ox.ops.recurrent.rnn_loops import Starts, Sums, clear_ended, compiled, keep_ended, pieces, projected, sigmoid


def gru(
    xp: XP, X: Array, W: Array, R: Array, b: Array | None, h: Array, alive: Array | None, reverse: bool,
    linear: bool, Y: Array, gates: Array,
) -> None:  # fmt: skip
    """Fill Y [T, N, H] (held after a sequence's end) and the gates z r n q [T, 4, N, H], where q is what the reset gate
    multiplies: the product with the state (`linear`: before the reset), or the state itself."""
    if linear and (loaded := compiled(xp, X, R)) is not None:
        kernels, first = loaded
        kernels.gru(first, X, W, R, b, h, alive, reverse, Y, gates)
        return
    H = R.shape[1]
    if not linear and cuda_recurrent.serves(X, H):
        cuda_recurrent.gru_before_product(xp, X, W, R, b, h, alive, reverse, Y, gates)
        return
    outer, inner = (None, xp.zeros(1, X.dtype)) if b is None else (b[: 3 * H], b[3 * H :])
    if outer is not None and not linear:
        outer = outer + inner
    Rt = xp.ascontiguousarray(R.T if linear else R[: 2 * H].T)
    Rn = xp.ascontiguousarray(R[2 * H :].T)
    pair = xp.empty((len(h), 2 * H), X.dtype)
    turned = pair.reshape(len(h), 2, H).transpose(1, 0, 2)
    for t, total in projected(xp, X, W, outer, reverse):
        z, y = gates[t], Y[t]
        product = xp.matmul(h, Rt)
        if linear:
            product += inner
        xp.add(product[:, : 2 * H], total[:, : 2 * H], out=pair)
        xp.copyto(z[:2], turned)
        sigmoid(xp, z[:2])
        xp.copyto(z[3], product[:, 2 * H :] if linear else h)
        xp.multiply(z[1], z[3], out=z[2])
        if not linear:
            z[2] = xp.matmul(z[2], Rn)
        z[2] += total[:, 2 * H :]
        xp.tanh(z[2], out=z[2])
        xp.subtract(h, z[2], out=y)
        y *= z[0]
        y += z[2]
        keep_ended(xp, alive, t, y, h)
        h = y
    clear_ended(alive, gates)


def gru_backward(
    xp: XP, sums: Sums, R: Array, starts: Starts, alive: Array | None, reverse: bool, linear: bool,
    gates: Array, gY: Array | None, dh: Array,
) -> Array:  # fmt: skip
    """Add up the weights' gradients; the cotangent of the first state from that of the last."""
    if linear and (loaded := compiled(xp, sums.X, R)) is not None:
        kernels, first = loaded
        *to_weights, to_h = kernels.gru_backward(
            first, sums.X, sums.W, R, starts.Y, starts.first, alive, reverse, gates, gY, dh, sums.dX is not None
        )
        sums.add_whole(*to_weights)
        return to_h
    T, _, N, H = gates.shape
    if not linear and cuda_recurrent.serves(sums.X, H):
        *to_weights, to_h = cuda_recurrent.gru_before_product_backward(
            xp, sums.X, sums.W, R, starts.Y, starts.first, alive, reverse, gates, gY, dh, sums.dX is not None
        )
        sums.add_whole(*to_weights)
        return to_h
    steps = list(pieces(T, not reverse, 3 * N * H))
    to_inputs, to_states = sums.scratch(steps, 3 * H), sums.scratch(steps, 3 * H)
    before, resets = sums.scratch(steps, H), sums.scratch(steps, H)
    for piece in steps:
        for t in piece:
            k = t - min(piece)
            d, e = to_inputs[k], to_states[k]
            start = before[k]
            start[...] = starts.at(t)
            update, reset, new, q = gates[t]
            total = dh if gY is None else dh + gY[t]
            through = total * (1 - update) * (1 - new * new)
            d[:, :H] = total * (start - new) * update * (1 - update)
            d[:, 2 * H :] = through
            product = through if linear else xp.matmul(through, R[2 * H :])
            d[:, H : 2 * H] = product * q * reset * (1 - reset)
            e[...] = d
            if linear:
                e[:, 2 * H :] *= reset
                dh_before = xp.matmul(e, R)
            else:
                dh_before = xp.matmul(d[:, : 2 * H], R[: 2 * H])
                dh_before += product * reset
                xp.multiply(reset, start, out=resets[k])
            dh_before += total * update
            if alive is None:
                dh = dh_before
            else:
                d *= alive[t]
                e *= alive[t]
                dh = xp.where(alive[t], dh_before, dh)
        sums.add(piece, to_inputs, to_states, before)
        if not linear:  # the last third multiplied reset times state
            n = len(piece)
            rows = to_states[:n].reshape(-1, 3 * H)[:, 2 * H :]
            sums.dR[2 * H :] += xp.matmul(rows.T, (resets[:n] - before[:n]).reshape(-1, H))
    return dh
