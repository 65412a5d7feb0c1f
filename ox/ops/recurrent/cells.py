"""One direction of RNN, GRU and LSTM in operators: forward, and back from Y; see `ox.ops.recurrent.steps`.

Sums and gates are [T, N, k·H] and [T, N, H]. `forward` gives the states after each step (held after a sequence's end)
and the last ones; `backward` the gradients of W, R, b, X, then of the first states, then of the peepholes.
"""

from typing import Any

from ox.core.constants import axes_tensor, constant
from ox.core.operator import OPS
from ox.core.tensor import TensorBase, TensorType
from ox.ops.elementwise.arithmetic import Add, Mul, Sub
from ox.ops.elementwise.comparison import Where
from ox.ops.linalg.matmul import Gemm, MatMul
from ox.ops.recurrent.activations import slope, value
from ox.ops.recurrent.steps import Direction, concat_last, gates, plus, rows
from ox.ops.recurrent.time_loop import over_time


def rnn(d: Direction) -> tuple[TensorBase, list[TensorBase]]:
    def step(states: list[Any], slices: list[Any]) -> Any:
        (h,) = states
        new = value(d.f[0], Add(slices[0], MatMul(h, d.Rt)), d.clip)
        new = d.keep_ended(d.living(slices), new, h)
        return [new], [new]

    last, made = over_time(step, [d.h], d.with_alive(d.sums()), d.reverse)
    return made[0], last


def rnn_backward(d: Direction, Y: TensorBase, gY: TensorBase | None, dh: TensorBase, _: Any) -> list[TensorBase]:
    starts = d.starts(Y, d.h)
    k = slope(d.f[0], d.sums(starts), d.clip)

    def step(states: list[Any], slices: list[Any]) -> Any:
        (dh,) = states
        k, *rest = slices
        total = dh if gY is None else Add(dh, rest[0])
        alive = d.living(slices)
        made = Mul(total, k)
        made = made if alive is None else Where(alive, made, constant(0, made))
        return [d.keep_ended(alive, MatMul(made, d.R), dh)], [made]

    (dh,), (dz,) = over_time(step, [dh], d.with_alive(k, *_if_any(gY)), not d.reverse)
    return [*d.weights(dz, dz, starts), dh]


def _if_any(gY: TensorBase | None) -> list[TensorBase]:
    return [] if gY is None else [gY]


def _split_bias(b: TensorBase | None) -> Any:
    return (None, None) if b is None else OPS["Split"](b, axis=0, num_outputs=2, outputs=2)


def _biased(x: TensorType, b: TensorBase | None) -> TensorType:
    return x if b is None else Add(x, b)


def _pair(x: TensorBase) -> tuple[TensorBase, TensorBase]:
    """The first two thirds along the first axis, and the last one."""
    first, second, third = OPS["Split"](x, axis=0, num_outputs=3, outputs=3)
    return OPS["Concat"](first, second, axis=0), third


class GRU:
    """The weights of a GRU's direction in the parts that its equations have."""

    def __init__(self, d: Direction) -> None:
        self.d, self.linear = d, bool(d.this.flag)
        outer, self.inner = _split_bias(d.b)
        self.Rg, self.Rn = _pair(d.R)
        self.bg: Any
        self.bn: Any
        self.bg, self.bn = (None, None) if self.inner is None else _pair(self.inner)
        self.sums = _biased(MatMul(d.X, OPS["Transpose"](d.W)), outer)

    def at(self, x: TensorBase, h: TensorBase) -> tuple[TensorBase, ...]:
        """From sums with inputs and states: the sums of z and r, the gates z and r, what r multiplies, and n's sum."""
        d = self.d
        xz, xr, xn = gates(x, 3)
        hz, hr = gates(_biased(MatMul(h, OPS["Transpose"](self.Rg)), self.bg), 2)
        az, ar = Add(xz, hz), Add(xr, hr)
        z, r = value(d.f[0], az, d.clip), value(d.f[0], ar, d.clip)
        Rn = OPS["Transpose"](self.Rn)
        if self.linear:
            q = _biased(MatMul(h, Rn), self.bn)
            return az, ar, z, r, q, Add(xn, Mul(r, q))
        return az, ar, z, r, h, Add(xn, _biased(MatMul(Mul(r, h), Rn), self.bn))


def gru(d: Direction) -> tuple[TensorBase, list[TensorBase]]:
    cell = GRU(d)

    def step(states: list[Any], slices: list[Any]) -> Any:
        (h,) = states
        *_, z, _, _, an = cell.at(slices[0], h)
        n = value(d.f[1], an, d.clip)
        new = d.keep_ended(d.living(slices), Add(n, Mul(z, Sub(h, n))), h)
        return [new], [new]

    last, made = over_time(step, [d.h], d.with_alive(cell.sums), d.reverse)
    return made[0], last


def gru_gates(d: Direction, Y: TensorBase) -> tuple[TensorBase | None, ...]:
    """z, r, n and what the reset gate multiplies; it has no cells."""
    cell = GRU(d)
    *_, z, r, q, an = cell.at(cell.sums, d.starts(Y, d.h))
    return z, r, value(d.f[1], an, d.clip), q, None


def gru_backward(d: Direction, Y: TensorBase, gY: TensorBase | None, dh: TensorBase, _: Any) -> list[TensorBase]:
    cell, starts = GRU(d), d.starts(Y, d.h)
    az, ar, z, r, q, an = cell.at(cell.sums, starts)
    n, one = value(d.f[1], an, d.clip), constant(1, az)
    kn = Mul(Sub(one, z), slope(d.f[1], an, d.clip))
    kz = Mul(Sub(starts, n), slope(d.f[0], az, d.clip))
    kr = Mul(q, slope(d.f[0], ar, d.clip))

    def step(states: list[Any], slices: list[Any]) -> Any:
        (dh,) = states
        z, r, kn, kz, kr, *rest = slices
        alive = d.living(slices)
        total = dh if gY is None else Add(dh, rest[0])
        if alive is not None:
            total = Where(alive, total, constant(0, total))
        through, dz = Mul(total, kn), Mul(total, kz)
        if cell.linear:
            dr = Mul(through, kr)
            made = MatMul(concat_last(dz, dr, Mul(through, r)), d.R)
        else:
            product = MatMul(through, cell.Rn)
            dr = Mul(product, kr)
            made = Add(MatMul(concat_last(dz, dr), cell.Rg), Mul(product, r))
        made = Add(made, Mul(total, z))
        return [d.keep_ended(alive, made, dh)], [concat_last(dz, dr, through)]

    (dh,), (dx,) = over_time(step, [dh], d.with_alive(z, r, kn, kz, kr, *_if_any(gY)), not d.reverse)
    dz, dr, dn = gates(dx, 3)
    if cell.linear:
        return [*d.weights(dx, concat_last(dz, dr, Mul(dn, r)), starts), dh]
    dW, _, db, dX = d.weights(dx, dx, starts)
    dR = Gemm(rows(concat_last(dz, dr)), rows(starts), transA=1), Gemm(rows(dn), rows(Mul(r, starts)), transA=1)
    return [dW, OPS["Concat"](*dR, axis=0), db, dX, dh]


def _lstm_cell(d: Direction, z: TensorBase, c: TensorBase) -> tuple[TensorBase, ...]:
    """The new cells from the gates' sums and the old ones; also the sums with the peepholes, and i, f, g."""
    zi, _, zf, zg = gates(z, 4)
    zi = plus(zi, d.P[0], c)
    i = value(d.f[0], zi, d.clip)
    if d.this.flag:
        f = Sub(constant(1, i), i)
    else:
        zf = plus(zf, d.P[2], c)
        f = value(d.f[0], zf, d.clip)
    g = value(d.f[1], zg, d.clip)
    return Add(Mul(f, c), Mul(i, g)), zi, zf, zg, i, f, g


def lstm(d: Direction) -> tuple[TensorBase, list[TensorBase]]:
    def step(states: list[Any], slices: list[Any]) -> Any:
        h, c = states
        z = Add(slices[0], MatMul(h, d.Rt))
        new = _lstm_cell(d, z, c)[0]
        o = value(d.f[0], plus(gates(z, 4)[1], d.P[1], new), d.clip)
        # the clip is for what comes from weights: as ONNX Runtime does it, not for the cell's own activation
        y = Mul(o, value(d.f[2], new, None))
        alive = d.living(slices)
        y, new = d.keep_ended(alive, y, h), d.keep_ended(alive, new, c)
        return [y, new], [y]

    last, made = over_time(step, [d.h, d.c], d.with_alive(d.sums()), d.reverse)
    return made[0], last


def lstm_cells(d: Direction, z: TensorBase) -> tuple[TensorBase, TensorBase]:
    """The cells after each step (held after a sequence's end) and before it, from the gates' sums."""

    def step(states: list[Any], slices: list[Any]) -> Any:
        (c,) = states
        new = d.keep_ended(d.living(slices), _lstm_cell(d, slices[0], c)[0], c)
        return [new], [new, c]

    made = over_time(step, [d.c], d.with_alive(z), d.reverse, 2)[1]
    return made[0], made[1]


def lstm_gates(d: Direction, Y: TensorBase) -> tuple[TensorBase, ...]:
    """i, o, f, c, and the cells."""
    z = d.sums(d.starts(Y, d.h))
    cells, before = lstm_cells(d, z)
    *_, i, f, g = _lstm_cell(d, z, before)
    o = value(d.f[0], plus(gates(z, 4)[1], d.P[1], cells), d.clip)
    return i, o, f, g, cells


def lstm_backward(
    d: Direction, Y: TensorBase, gY: TensorBase | None, dh: TensorBase, dc: TensorBase
) -> list[TensorBase]:
    starts = d.starts(Y, d.h)
    z = d.sums(starts)
    cells, before = lstm_cells(d, z)
    _, zi, zf, zg, i, f, g = _lstm_cell(d, z, before)
    zo = plus(gates(z, 4)[1], d.P[1], cells)
    ko = Mul(value(d.f[2], cells, None), slope(d.f[0], zo, d.clip))
    kc = Mul(value(d.f[0], zo, d.clip), slope(d.f[2], cells, None))
    ki = Mul(Sub(g, before) if d.this.flag else g, slope(d.f[0], zi, d.clip))
    kf = Mul(before, constant(0, f) if d.this.flag else slope(d.f[0], zf, d.clip))
    kg = Mul(i, slope(d.f[1], zg, d.clip))

    def step(states: list[Any], slices: list[Any]) -> Any:
        dh, dc = states
        ko, kc, ki, kf, kg, f, *rest = slices
        alive = d.living(slices)
        total = dh if gY is None else Add(dh, rest[0])
        do = Mul(total, ko)
        cell = plus(Add(dc, Mul(total, kc)), d.P[1], do)
        di, df, dg = Mul(cell, ki), Mul(cell, kf), Mul(cell, kg)
        dz = concat_last(di, do, df, dg)
        if alive is not None:
            dz = Where(alive, dz, constant(0, dz))
        made = plus(plus(Mul(cell, f), d.P[0], di), d.P[2], df)
        return [d.keep_ended(alive, MatMul(dz, d.R), dh), d.keep_ended(alive, made, dc)], [dz]

    sequences = d.with_alive(ko, kc, ki, kf, kg, f, *_if_any(gY))
    (dh, dc), (dz,) = over_time(step, [dh, dc], sequences, not d.reverse)
    result = [*d.weights(dz, dz, starts), dh, dc]
    if d.P[0] is not None:
        outer = axes_tensor([0, 1])
        di, do, df, _ = gates(dz, 4)
        sums = (OPS["ReduceSum"](Mul(a, b), outer, keepdims=0) for a, b in ((di, before), (do, cells), (df, before)))
        result.append(OPS["Concat"](*sums, axis=0))
    return result


FORWARD = {"RNN": rnn, "GRU": gru, "LSTM": lstm}
BACKWARD: Any = {"RNN": rnn_backward, "GRU": gru_backward, "LSTM": lstm_backward}
GATES: Any = {"GRU": gru_gates, "LSTM": lstm_gates}
