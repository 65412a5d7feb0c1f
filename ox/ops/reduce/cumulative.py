"""Running totals along an axis: CumSum CumProd, and the functions CumulativeArgMax and LogCumSumExp."""

from typing import Any

import numpy as np

from ox.core import operator as called
from ox.core.constants import axes_tensor, constant, number, on_device_of
from ox.core.function import function
from ox.core.operator import OPS, operator
from ox.core.symbolic import size_tensor
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Array, HostTind, Int64, T
from ox.core.upcast import in_float32
from ox.dtypes import FLOATS, NUMERIC, float32, float64, int32, int64, onnx_type
from ox.ops.elementwise.arithmetic import Add, Div, Exp, Log, Mul, Neg, Sub
from ox.ops.elementwise.comparison import Equal, Greater, LessOrEqual, Where
from ox.ops.reduce.log_reduction import ReduceLogSumExp
from ox.ops.reduce.reduction import ACCUMULATING, ArgMax
from ox.ops.shape.cast import Range, Shape

__all__ = ["CumProd", "CumSum", "CumulativeArgMax", "LogCumSumExp"]

AXIS = (int32, int64)


def _along(axis: Any, rank: int) -> int:
    a = int(axis.reshape(()))
    if not -rank <= a < rank:
        raise IndexError(f"axis {a} of a tensor of {rank} dimensions")
    return a % rank


def _running(xp: XP, total: Any, first: int, x: Array, axis: int, exclusive: int, reverse: int) -> Array:
    """`total` (cumsum or cumprod) of x; with `exclusive` moved by one place, `first` before it."""
    if reverse:
        x = xp.flip(x, axis)
    wide = float64 if x.dtype == float32 else x.dtype  # each number rounds the ones before it once more
    y = total(x, axis=axis, dtype=wide).astype(x.dtype, copy=False)
    if exclusive and x.shape[axis]:
        moved = xp.empty_like(y)
        places = xp.moveaxis(moved, axis, 0)
        places[0] = first
        places[1:] = xp.moveaxis(y, axis, 0)[:-1]
        y = moved
    return xp.flip(y, axis) if reverse else y


@operator("y", kind="cumulative", T=ACCUMULATING, Tind=AXIS, amp="float32")
@in_float32
def CumSum(xp: XP, x: T, axis: HostTind, *, exclusive: int = 0, reverse: int = 0) -> T:
    """Running sum along an axis; `exclusive` leaves out the place itself. ONNX CumSum."""
    return _running(xp, xp.cumsum, 0, x, _along(axis, x.ndim), exclusive, reverse)


@CumSum.gradient("x")
def _(g: TensorBase, axis: TensorBase, exclusive: int, reverse: int) -> TensorBase:
    return CumSum(g, axis, exclusive=exclusive, reverse=1 - reverse)


@operator("y", kind="cumulative", T=ACCUMULATING, Tind=AXIS, ignore_fp_warnings=True, amp="float32")
@in_float32
def CumProd(xp: XP, x: T, axis: HostTind, *, exclusive: int = 0, reverse: int = 0) -> T:
    """Running product along an axis; `exclusive` leaves out the place itself. ONNX CumProd."""
    return _running(xp, xp.cumprod, 1, x, _along(axis, x.ndim), exclusive, reverse)


@CumProd.expansion
def _(x: TensorBase, axis: TensorBase, *, exclusive: int = 0, reverse: int = 0) -> TensorBase:
    """A Scan whose state is the product so far. A further slice of ones moves an exclusive product by one place, and
    lets ONNX Runtime, which cannot run a Scan without a step, take an axis of size 0."""
    along = _along(axis.array, x.ndim)
    order = [along, *(i for i in range(x.ndim) if i != along)]
    moved = OPS["Transpose"](x, perm=order)
    ones = on_device_of(OPS["Expand"](constant(1, x), size_tensor([1, *moved.shape[1:]])), x)
    whole = OPS["Concat"](*([ones, moved] if exclusive and not reverse else [moved, ones]), axis=0)

    def step(before: TensorBase, now: TensorBase) -> tuple[TensorBase, TensorBase]:
        after = Mul(before, now)
        return after, OPS["Identity"](after)

    first = OPS["Squeeze"](ones, axes_tensor([0]))
    directions = {"scan_input_directions": [reverse], "scan_output_directions": [reverse]}
    _, y = OPS["Scan"](first, whole, body=step, num_scan_inputs=1, **directions)
    ends = ([1], [2**62]) if exclusive and reverse else ([0], [-1])
    cut = OPS["Slice"](y, *map(axes_tensor, ends), axes_tensor([0]))
    return OPS["Transpose"](cut, perm=[order.index(i) for i in range(x.ndim)])


@CumProd.gradient("x")
def _(g: TensorBase, x: TensorBase, axis: TensorBase, exclusive: int, reverse: int) -> TensorBase:
    # With each zero replaced by 1, a product without x[i] is a quotient. How many zeros a product holds says whether
    # the quotient stands; `held` is the sum of those zeros, which is 0 but carries their derivative to second order.
    def running(op: Any, values: TensorBase) -> TensorBase:
        return op(values, axis, exclusive=exclusive, reverse=reverse)

    def back(values: TensorType) -> TensorType:
        return CumSum(values, axis, exclusive=exclusive, reverse=1 - reverse)

    zero, one = constant(0, g), constant(1, g)
    none = Equal(x, zero)
    filled = Where(none, one, x)
    count = running(CumSum, OPS["Cast"](none, to=onnx_type(g.dtype)))
    held = running(CumSum, Where(none, x, zero))
    product = Mul(g, running(CumProd, filled))
    no_zero, one_zero = Equal(count, zero), Equal(count, one)
    elsewhere = back(Mul(product, Where(no_zero, one, Where(one_zero, held, zero))))
    two = Where(Equal(count, constant(2, g)), product, zero)
    there = Add(back(Where(one_zero, product, zero)), Sub(back(Mul(two, held)), Mul(x, back(two))))
    return Where(none, there, Div(elsewhere, filled))


def _prefixes(X: TensorType, axis: int, fill: TensorBase, reverse: int = 0) -> TensorType:
    """[..., n, n, ...]: along the added axis, after `axis`, all that comes up to each place, and `fill` beyond."""
    places = _places(X, axis)
    rest = list(range(2, X.array.ndim - axis + 1))
    rows = OPS["Unsqueeze"](places, axes_tensor([1, *rest]))
    columns = OPS["Unsqueeze"](places, axes_tensor([0, *rest]))
    seen = LessOrEqual(rows, columns) if reverse else LessOrEqual(columns, rows)
    return Where(seen, OPS["Unsqueeze"](X, axes_tensor([axis])), fill)


def _places(X: TensorType, axis: int) -> TensorType:
    """0, 1, ... along an axis."""
    n = OPS["Squeeze"](Shape(X, start=axis, end=axis + 1), axes_tensor([0]))
    places: TensorType = Range(number(0, int64), n, number(1, int64))
    return places


@function("indices", kind="cumulative", T=NUMERIC, amp="widest", batching="each")
def CumulativeArgMax(X: T, *, axis: int) -> Int64:
    """Position of the greatest value so far, the last of equals. The body compares each place with all before it."""
    dtype = X.array.dtype
    lowest = np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf
    found = ArgMax(_prefixes(X, axis, number(lowest, dtype)), axis=axis + 1, keepdims=0, select_last_index=1)
    # while only the lowest number came, the fill beyond is its equal
    rest = list(range(1, X.array.ndim - axis))
    places = _places(X, axis)
    return OPS["Min"](found, OPS["Unsqueeze"](places, axes_tensor(rest)) if rest else places)


_by_places = CumulativeArgMax.kernel


@CumulativeArgMax.fast
def _(xp: XP, X: Array, *, axis: int) -> Array:
    if xp is not np:  # CuPy's ufuncs do not accumulate
        return _by_places(xp, X, axis=axis)
    greatest = np.maximum.accumulate(X, axis=axis)
    places = np.arange(X.shape[axis]).reshape([-1, *[1] * (X.ndim - axis - 1)])
    return np.maximum.accumulate(np.where((greatest == X) | (X != X), places, 0), axis=axis)


@function("Y", kind="cumulative", T=FLOATS, amp="float32", batching="each")
def LogCumSumExp(X: T, *, axis: int, reverse: int = 0) -> T:
    """Logarithm of the running sum of exponentials. The body reduces all that comes up to each place."""
    lowest = called.make_tensor(np.asarray(-np.inf, X.array.dtype))
    return ReduceLogSumExp(_prefixes(X, axis, lowest, reverse), axes_tensor([axis + 1]), keepdims=0)


_by_sums = LogCumSumExp.kernel


@LogCumSumExp.fast
@in_float32
def LogCumSumExp_fast(xp: XP, X: Array, *, axis: int, reverse: int = 0) -> Array:
    if xp is not np:
        return _by_sums(xp, X, axis=axis, reverse=reverse)
    x = np.flip(X, axis) if reverse else X
    with np.errstate(all="ignore"):
        y = np.logaddexp.accumulate(x.astype(float64, copy=False), axis=axis).astype(X.dtype, copy=False)
    return np.flip(y, axis) if reverse else y


@LogCumSumExp.gradient("X")
def _(g: TensorBase, X: TensorBase, Y: TensorBase, axis: int, reverse: int) -> TensorBase:
    # the sum over j of g[j] exp(X - Y[j]), in logarithms, of what is positive and what is negative apart
    def part(share: TensorBase) -> TensorBase:
        zero, one = constant(0, g), constant(1, g)
        there = Greater(share, zero)
        log = Where(there, Sub(Log(Where(there, share, one)), Y), constant(-3e4, g))
        total: TensorBase = LogCumSumExp(log, axis=axis, reverse=1 - reverse)
        return Exp(Add(total, X))

    return Sub(part(g), part(Neg(g)))
