"""Linear algebra that ONNX does not have: Solve and Cholesky as functions of the domain ``ox``, with a body in
operators. Factorizations without a body are in `ox.ops.linalg.factorization`.

Matrices are [..., m, n], in float32 and float64.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ox.core.constants import axes_tensor, constant, number
from ox.core.function import function
from ox.core.kind import Kind
from ox.core.mode import MODE, cannot_record
from ox.core.operator import OPS, Amp, Operator
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Array, T
from ox.dtypes import DType, float32, float64, int64
from ox.errors import LinAlgError, RecordError, ShapeError
from ox.ops.elementwise.arithmetic import Abs, Div, Mul, Sqrt, Sub
from ox.ops.elementwise.comparison import Equal, GreaterOrEqual, Where
from ox.ops.linalg.matmul import MatMul
from ox.ops.recurrent.time_loop import over_time

KINDS = (float32, float64)


class Factorization(Operator):
    """An operator of the domain ``ox`` that has no body, so no recording can hold it."""

    domain = "ox"
    batching = "each"  # no recording holds it

    def __call__(self, *inputs: Any, outputs: int | None = None, **attributes: Any) -> Any:
        if MODE.get().recording is not None:
            cannot_record(
                RecordError(
                    f"{self.name} has no form in ONNX operators, so it cannot be recorded",
                    hint="compute it outside the recorded function, or use solve, inv, cholesky or det, which record",
                )
            )
        wanted = len(self.schema.outputs) if outputs is None else outputs
        return super().__call__(*inputs, outputs=wanted, **attributes)


def factorization(
    outputs: str, *, amp: Amp, kind: Kind = "factorization", **types: tuple[DType, ...]
) -> Callable[[Callable[..., Any]], Factorization]:
    """Define one from its kernel."""

    def define(kernel: Callable[..., Any]) -> Factorization:
        made = Factorization(kernel, outputs, types, view=False)
        made.kind, made.amp = kind, amp
        OPS[f"ox.{made.name}"] = made
        return made

    return define


def square(name: str, A: Array) -> None:
    """Raise `ShapeError` unless A holds square matrices."""
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ShapeError(f"{name} takes square matrices", expected="[..., n, n]", got=str(list(A.shape)))


def transposed(x: TensorType) -> TensorType:
    """The last two dimensions exchanged."""
    rank = x.array.ndim
    return OPS["Transpose"](x, perm=[*range(rank - 2), rank - 1, rank - 2])


def triangle(x: TensorType, offset: int = 0, *, upper: int = 0) -> TensorType:
    return OPS["Trilu"](x, number(offset, int64), upper=upper)


def identity_like(x: TensorType) -> TensorType:
    """The identity [n, n] for matrices [..., n, n]."""
    size = OPS["Squeeze"](OPS["Shape"](x, start=-1), axes_tensor([0]))
    places = OPS["Range"](number(0, int64), size, number(1, int64))
    same = Equal(OPS["Unsqueeze"](places, axes_tensor([1])), OPS["Unsqueeze"](places, axes_tensor([0])))
    return Where(same, constant(1, x), constant(0, x))


def _columns(x: TensorBase) -> tuple[TensorBase, TensorBase]:
    """0 to n - 1 for matrices of n rows, and n as int64 [1]."""
    size = OPS["Shape"](x, start=x.array.ndim - 2, end=x.array.ndim - 1)
    last = OPS["Squeeze"](size, axes_tensor([0]))
    return OPS["Range"](number(0, int64), last, number(1, int64)), size


def _outer(a: TensorType, b: TensorBase) -> TensorType:
    return Mul(OPS["Unsqueeze"](a, axes_tensor([-1])), OPS["Unsqueeze"](b, axes_tensor([-2])))


@function("X", kind="factorization", T=KINDS, amp="float32", batching="each")
def Solve(A: T, B: T) -> T:
    """The X [..., n, k] with A X = B, for A [..., n, n] and B [..., n, k] of the same leading dimensions.

    The body is Gauss and Jordan's elimination with the largest pivot of each column.
    """
    rows, size = _columns(A)
    M = OPS["Concat"](A, B, axis=-1)

    def step(states: list[Any], slices: list[Any]) -> Any:
        (M,), (i,) = states, slices
        below = GreaterOrEqual(rows, i)
        column = OPS["Gather"](M, i, axis=-1)
        heights = Where(below, Abs(column), constant(-1, M))
        p = OPS["ArgMax"](heights, axis=-1, keepdims=1)
        order = Where(Equal(rows, i), p, Where(Equal(rows, p), i, rows))
        spread = OPS["Expand"](OPS["Unsqueeze"](order, axes_tensor([-1])), OPS["Shape"](M))
        M = OPS["GatherElements"](M, spread, axis=-2)
        column, row = OPS["Gather"](M, i, axis=-1), OPS["Gather"](M, i, axis=-2)
        pivot = OPS["Gather"](row, i, axis=-1)
        row = Div(row, OPS["Unsqueeze"](pivot, axes_tensor([-1])))
        here = Equal(rows, i)
        factor = Where(here, constant(0, M), column)
        M = Where(OPS["Unsqueeze"](here, axes_tensor([-1])), OPS["Unsqueeze"](row, axes_tensor([-2])), M)
        return [Sub(M, _outer(factor, row))], []

    (M,), _ = over_time(step, [M], [rows], False, 0)
    return OPS["Slice"](M, size, axes_tensor([2**62]), axes_tensor([-1]))


@Solve.fast
def _(xp: XP, A: Array, B: Array) -> Array:
    square("solve", A)
    if B.ndim < 2 or A.shape[:-1] != B.shape[:-1]:
        raise ShapeError(
            "solve takes as many rows on both sides", expected=f"B {[*A.shape[:-1], 'k']}", got=f"B {list(B.shape)}"
        )
    try:
        return xp.linalg.solve(A, B)
    except np.linalg.LinAlgError:
        raise LinAlgError("a matrix is singular, so nothing can be solved with it", hint="pinv or lstsq") from None


@Solve.gradient("A", "B")
def _(g: TensorBase, A: TensorBase, X: TensorBase, needs: tuple[bool, bool]) -> tuple[TensorBase | None, TensorBase]:
    to_b: TensorBase = Solve(transposed(A), g)
    return (-MatMul(to_b, transposed(X)) if needs[0] else None), to_b


@function("L", kind="factorization", T=KINDS, amp="float32", batching="each")
def Cholesky(A: T) -> T:
    """The lower triangle L [..., n, n] with L Lᵀ = A, of which the lower triangle is read. The body takes off one
    column after the other."""
    rows, _ = _columns(A)

    def step(states: list[Any], slices: list[Any]) -> Any:
        (A,), (j,) = states, slices
        column = OPS["Gather"](A, j, axis=-1)
        root = Sqrt(OPS["Gather"](column, j, axis=-1))
        column = Where(GreaterOrEqual(rows, j), Div(column, OPS["Unsqueeze"](root, axes_tensor([-1]))), constant(0, A))
        return [Sub(A, _outer(column, column))], [column]

    _, (L,) = over_time(step, [A], [rows], False)
    rank = A.array.ndim
    return OPS["Transpose"](L, perm=[*range(1, rank), 0])


@Cholesky.fast
def _(xp: XP, A: Array) -> Array:
    square("cholesky", A)
    try:
        return xp.linalg.cholesky(A)
    except np.linalg.LinAlgError:
        raise LinAlgError(
            "a matrix is not positive-definite, so it has no Cholesky factor", hint="cholesky_ex returns its index"
        ) from None


@Cholesky.gradient("A")
def _(g: TensorBase, L: TensorBase) -> TensorBase:
    # S = L⁻ᵀ Φ(Lᵀ g) L⁻¹, where Φ takes the lower triangle and half the diagonal; the gradient is symmetric
    inner = triangle(MatMul(transposed(L), g))
    inner = Sub(inner, Mul(Mul(inner, identity_like(L)), constant(0.5, g)))
    Lt = transposed(L)
    left: TensorBase = Solve(Lt, inner)
    S: TensorBase = transposed(Solve(Lt, transposed(left)))
    return Mul(OPS["Add"](S, transposed(S)), constant(0.5, g))


@function("sign logabsdet", kind="factorization", T=KINDS, amp="float32", batching="each")
def LogDet(A: T) -> tuple[T, T]:
    """Sign and logarithm of the absolute value of the determinants of A [..., n, n]."""
    det = OPS["Det"](A)
    return OPS["Sign"](det), OPS["Log"](Abs(det))


@LogDet.fast
def _(xp: XP, A: Array) -> tuple[Array, Array]:
    square("slogdet", A)
    sign, log = xp.linalg.slogdet(A)
    return xp.asarray(sign, A.dtype), xp.asarray(log, A.dtype)


@LogDet.gradient("A")
def _(g_sign: TensorBase | None, g: TensorBase | None, A: TensorBase) -> TensorBase:
    if g is None:
        return Mul(A, constant(0, A))
    inverse: TensorBase = Solve(transposed(A), OPS["Expand"](identity_like(A), OPS["Shape"](A)))
    return Mul(inverse, OPS["Unsqueeze"](g, axes_tensor([-1, -2])))
