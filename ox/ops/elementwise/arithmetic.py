"""Elementwise arithmetic: Add Sub Mul Div Neg Abs Sign Sqrt Reciprocal Exp Log Pow Min Max Sum Mean Clip Mod."""

from functools import reduce

import numpy as np

from ox.core.broadcast import sum_to
from ox.core.constants import constant
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase
from ox.core.types import T1, XP, T
from ox.core.upcast import downcast, in_float32
from ox.dtypes import FLOATS, HALF_TYPES, NUMERIC, SIGNED, DType, float32, float64, int32, int64, onnx_type
from ox.ops.elementwise.comparison import And, Equal, Less, Or, Where, nothing

__all__ = [
    "Abs", "Add", "Clip", "Div", "Exp", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Pow", "Reciprocal", "Sign",
    "Sqrt", "Sub", "Sum",
]  # fmt: skip


@operator("C", kind="pointwise", commutative=True, T=NUMERIC, amp="widest")
def Add(xp: XP, A: T, B: T) -> T:
    """Sum, with NumPy broadcasting. ONNX Add."""
    return xp.add(A, B)


@Add.gradient("A")
def _(g: TensorBase, A_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(g, A_shape)


@Add.gradient("B")
def _(g: TensorBase, B_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(g, B_shape)


@operator("C", kind="pointwise", T=NUMERIC, amp="widest")
def Sub(xp: XP, A: T, B: T) -> T:
    """Difference, with NumPy broadcasting. ONNX Sub."""
    return xp.subtract(A, B)


@Sub.gradient("A")
def _(g: TensorBase, A_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(g, A_shape)


@Sub.gradient("B")
def _(g: TensorBase, B_shape: tuple[int, ...]) -> TensorBase:
    return Neg(sum_to(g, B_shape))


@operator("C", kind="pointwise", commutative=True, T=NUMERIC, amp="widest")
def Mul(xp: XP, A: T, B: T) -> T:
    """Product, with NumPy broadcasting. ONNX Mul."""
    return xp.multiply(A, B)


@Mul.gradient("A")
def _(g: TensorBase, B: TensorBase, A_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(Mul(g, B), A_shape)


@Mul.gradient("B")
def _(g: TensorBase, A: TensorBase, B_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(Mul(g, A), B_shape)


@operator("C", kind="pointwise", T=NUMERIC, ignore_fp_warnings=True, amp="widest")
def Div(xp: XP, A: T, B: T) -> T:
    """Quotient, with NumPy broadcasting; of integers, rounded toward zero. ONNX Div."""
    kind = A.dtype.kind
    if kind == "i":
        return xp.floor_divide(xp.subtract(A, xp.fmod(A, B)), B)
    return xp.floor_divide(A, B) if kind == "u" else xp.divide(A, B)


@Div.gradient("A")
def _(g: TensorBase, B: TensorBase, A_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(Div(g, B), A_shape)


@Div.gradient("B")
def _(g: TensorBase, A: TensorBase, B: TensorBase, B_shape: tuple[int, ...]) -> TensorBase:
    # A / B once more: kept, the quotient could not be written in place, as in `loss = a / b; loss += c`
    return Neg(sum_to(Div(Mul(g, Div(A, B)), B), B_shape))


@operator("Y", kind="pointwise", T=(*FLOATS, *SIGNED), amp="widest")
def Neg(xp: XP, X: T) -> T:
    """Negation. ONNX Neg."""
    return xp.negative(X)


@Neg.gradient("X")
def _(g: TensorBase) -> TensorBase:
    return Neg(g)


@operator("Y", kind="pointwise", T=NUMERIC, amp="widest")
def Abs(xp: XP, X: T) -> T:
    """Absolute value; its gradient at 0 is 0. ONNX Abs."""
    return xp.absolute(X)


@Abs.gradient("X")
def _(g: TensorBase, X: TensorBase) -> TensorBase:
    return Mul(g, Sign(X))


@operator("output", kind="pointwise", T=NUMERIC, amp="widest")
def Sign(xp: XP, input: T) -> T:
    """-1, 0 or 1; its gradient is 0. ONNX Sign."""
    return xp.sign(input)


@Sign.gradient("input")
def _(g: TensorBase) -> TensorBase:
    return nothing(g)


@operator("Y", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="float32")
def Sqrt(xp: XP, X: T) -> T:
    """Square root; NaN for negative values. ONNX Sqrt."""
    return xp.sqrt(X)


@Sqrt.gradient("X")
def _(g: TensorBase, Y: TensorBase) -> TensorBase:
    return Div(Mul(g, constant(0.5, g)), Y)


@operator("Y", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="float32")
def Reciprocal(xp: XP, X: T) -> T:
    """1 / X. ONNX Reciprocal."""
    return xp.reciprocal(X)


@Reciprocal.gradient("X")
def _(g: TensorBase, Y: TensorBase) -> TensorBase:
    return Neg(Mul(g, Mul(Y, Y)))


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="float32")
def Exp(xp: XP, input: T) -> T:
    """e to the power of the input. ONNX Exp."""
    return xp.exp(input)


@Exp.gradient("input")
def _(g: TensorBase, output: TensorBase) -> TensorBase:
    return Mul(g, output)


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="float32")
def Log(xp: XP, input: T) -> T:
    """Natural logarithm; NaN for negative values. ONNX Log."""
    return xp.log(input)


@Log.gradient("input")
def _(g: TensorBase, input: TensorBase) -> TensorBase:
    return Div(g, input)


@operator("Z", kind="pointwise", T=(int32, int64, *FLOATS), T1=NUMERIC, ignore_fp_warnings=True, amp="float32")
def Pow(xp: XP, X: T, Y: T1) -> T:
    """X to the power of Y, in X's type. ONNX Pow.

    An integer to a negative integer power is rounded toward zero.
    """
    dtype = X.dtype
    if dtype.kind == "i":
        if Y.dtype.kind in "iu":
            if Y.dtype.kind == "u":
                return xp.power(X, Y.astype(dtype))
            whole = xp.power(X, xp.maximum(Y, 0).astype(dtype))
            # 1/X is 0 except for 1 and -1; 1/0 is an infinity cast to an integer
            return xp.where(Y < 0, xp.power(X.astype(float64), Y).astype(dtype), whole) if (Y < 0).any() else whole
        return xp.power(X.astype(float64), Y.astype(float64)).astype(dtype)
    if dtype in HALF_TYPES:
        X = X.astype(float32)
    if Y.size == 1 and Y.ndim <= X.ndim and xp.__name__ == "numpy":
        # NumPy's power takes 20 to 500 times as long as a product; on a GPU looking at Y would wait for it
        exponent = Y.item()
        if exponent in (2.0, 3.0, 4.0):
            Z = xp.multiply(X, X)
            if exponent != 2.0:
                Z = xp.multiply(Z, X if exponent == 3.0 else Z)
            return Z if Z.dtype == dtype else downcast(Z, dtype)
    Z = xp.power(X, Y.astype(X.dtype) if Y.dtype != float64 else Y)
    return Z if Z.dtype == dtype else downcast(Z, dtype)


@Pow.gradient("X")
def _(g: TensorBase, X: TensorBase, Y: TensorBase, X_shape: tuple[int, ...]) -> TensorBase:
    # Y X^(Y-1), where Y is 0 with the exponent 0: 0 * 1 for every X, and not 0 * infinity
    if Y.dtype != X.dtype:
        Y = OPS["Cast"](Y, to=onnx_type(X.dtype))
    one = constant(1, Y)
    exponent = Where(Equal(Y, constant(0, Y)), Y, Sub(Y, one))
    return sum_to(Mul(g, Mul(Y, Pow(X, exponent))), X_shape)


@Pow.gradient("Y")
def _(g: TensorBase, X: TensorBase, Z: TensorBase, Y_shape: tuple[int, ...], Y_dtype: DType) -> TensorBase:
    # Z log X; at X = 0 it is 0, for Z is, and the logarithm must not be infinite
    log = Log(Where(Equal(X, constant(0, X)), constant(1, X), X))
    dY = sum_to(Mul(g, Mul(Z, log)), Y_shape)
    return dY if dY.dtype == Y_dtype else OPS["Cast"](dY, to=onnx_type(Y_dtype))


@operator("min", kind="pointwise", T=NUMERIC, amp="widest")
def Min(xp: XP, *data_0: T) -> T:
    """The smallest of the inputs at each place, with NumPy broadcasting; NaN wins.

    The gradient is shared evenly among the inputs that are smallest. ONNX Min.
    """
    return reduce(xp.minimum, data_0) if len(data_0) > 1 else data_0[0].copy()


@operator("max", kind="pointwise", T=NUMERIC, amp="widest")
def Max(xp: XP, *data_0: T) -> T:
    """The greatest of the inputs at each place, with NumPy broadcasting; NaN wins.

    The gradient is shared evenly among the inputs that are greatest. ONNX Max.
    """
    return reduce(xp.maximum, data_0) if len(data_0) > 1 else data_0[0].copy()


def _share(g: TensorBase, inputs: list[TensorBase], chosen: TensorBase) -> list[TensorBase]:
    to = onnx_type(g.dtype)
    masks = [OPS["Cast"](Equal(x, chosen), to=to) for x in inputs]
    g = Div(g, reduce(Add, masks))
    return [sum_to(Mul(g, mask), x.shape) for mask, x in zip(masks, inputs, strict=True)]


@Min.gradient("data_0")
def _(g: TensorBase, data_0: list[TensorBase]) -> list[TensorBase]:
    return _share(g, data_0, Min(*data_0))


@Max.gradient("data_0")
def _(g: TensorBase, data_0: list[TensorBase]) -> list[TensorBase]:
    return _share(g, data_0, Max(*data_0))


@operator("sum", kind="pointwise", T=FLOATS, amp="widest")
@in_float32
def Sum(xp: XP, *data_0: T) -> T:
    """The sum of the inputs, with NumPy broadcasting. ONNX Sum."""
    return reduce(xp.add, data_0) if len(data_0) > 1 else data_0[0].copy()


@Sum.gradient("data_0")
def _(g: TensorBase, data_0_shape: list[tuple[int, ...]]) -> list[TensorBase]:
    return [sum_to(g, shape) for shape in data_0_shape]


@operator("mean", kind="pointwise", T=FLOATS, amp="widest")
@in_float32
def Mean(xp: XP, *data_0: T) -> T:
    """The mean of the inputs, with NumPy broadcasting. ONNX Mean."""
    return xp.divide(reduce(xp.add, data_0), data_0[0].dtype.type(len(data_0)))


@Mean.gradient("data_0")
def _(g: TensorBase, data_0_shape: list[tuple[int, ...]]) -> list[TensorBase]:
    share = Div(g, constant(len(data_0_shape), g))
    return [sum_to(share, shape) for shape in data_0_shape]


@operator("output", kind="pointwise", contraction=True, T=NUMERIC, amp="widest", settings="min max")
def Clip(xp: XP, input: T, min: T = None, max: T = None) -> T:
    """The input held between two scalars; where min > max, max everywhere. ONNX Clip.

    The gradient passes where the value was not changed, so also on the bounds.
    """
    if min is None and max is None:
        return input.copy()
    result = input if min is None else xp.maximum(input, min)
    return result if max is None else xp.minimum(result, max)


@Clip.gradient("input")
def _(g: TensorBase, input: TensorBase, min: TensorBase | None, max: TensorBase | None) -> TensorBase:
    return Where(Equal(input, Clip(input, min, max)), g, constant(0, g))


@Clip.gradient("min")
def _(
    g: TensorBase, input: TensorBase, min: TensorBase, max: TensorBase | None, min_shape: tuple[int, ...]
) -> TensorBase:
    below = Less(input, min)
    return sum_to(Where(below if max is None else And(below, Less(min, max)), g, constant(0, g)), min_shape)


@Clip.gradient("max")
def _(
    g: TensorBase, input: TensorBase, min: TensorBase | None, max: TensorBase, max_shape: tuple[int, ...]
) -> TensorBase:
    above = Less(max, input)
    return sum_to(Where(above if min is None else Or(above, Less(max, min)), g, constant(0, g)), max_shape)


@operator("C", kind="pointwise", T=NUMERIC, ignore_fp_warnings=True, amp="widest")
def Mod(xp: XP, A: T, B: T, *, fmod: int = 0) -> T:
    """Remainder: with the sign of B, or with `fmod` that of A. ONNX Mod."""
    if fmod:
        return xp.fmod(A, B)
    found = xp.remainder(A, B)
    if xp is np or A.dtype.kind in "iu":
        return found
    # CuPy gives NaN for an infinite B: the remainder is A where the signs agree, else B
    agree = (A == 0) | ((A < 0) == (B < 0))
    whole = xp.isinf(B) & xp.isfinite(A)
    return xp.where(whole, xp.where(agree, A, B), found).astype(A.dtype, copy=False)


@Mod.gradient("A")
def _(g: TensorBase, A_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(g, A_shape)


@Mod.gradient("B")
def _(g: TensorBase, A: TensorBase, B: TensorBase, fmod: int, B_shape: tuple[int, ...]) -> TensorBase:
    whole = OPS["Round"](Div(Sub(A, Mod(A, B, fmod=fmod)), B))  # how often B was taken away
    return Neg(sum_to(Mul(g, whole), B_shape))
