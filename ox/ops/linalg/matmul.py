"""Matrix products: MatMul Gemm."""

from math import prod
from typing import Any

from ox.core.broadcast import reshape_to, sum_to
from ox.core.constants import axes_tensor, constant
from ox.core.operator import OPS, operator
from ox.core.symbolic import size_tensor
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, T
from ox.core.upcast import downcast
from ox.devices.summation import matmul
from ox.dtypes import FLOATS, HALF_TYPES, float32, int32, int64, uint32, uint64
from ox.errors import ShapeError
from ox.ops.elementwise.arithmetic import Mul

__all__ = ["Gemm", "MatMul"]

PRODUCTS = (*FLOATS, uint32, uint64, int32, int64)


@operator("Y", kind="product", T=PRODUCTS, amp="lower", batching="own", weights="A B")
def MatMul(xp: XP, A: T, B: T) -> T:
    """Matrix product of the last two dimensions, the others broadcast; a vector is a row or a column. ONNX MatMul."""
    if not A.ndim or not B.ndim or A.shape[-1] != B.shape[0 if B.ndim == 1 else -2]:
        raise _mismatch("MatMul", A, B)
    dtype = A.dtype
    if dtype in HALF_TYPES:
        return downcast(_product(xp, A.astype(float32), B.astype(float32)), dtype)
    return _product(xp, A, B)


def _product(xp: XP, A: Any, B: Any) -> Any:
    if A.ndim > 2 and B.ndim == 2 and A.size and A.flags.c_contiguous:
        # one product of all rows instead of a small one for every index of the batch
        return matmul(xp, A.reshape(-1, A.shape[-1]), B).reshape(*A.shape[:-1], B.shape[1])
    return matmul(xp, A, B)


def _mismatch(name: str, A: Any, B: Any) -> ShapeError:
    inner = B.shape[0 if B.ndim == 1 else -2] if B.ndim else None
    if A.ndim and inner is not None:
        return ShapeError(
            f"{name} cannot multiply {list(A.shape)} by {list(B.shape)}",
            expected=f"input [{'' if A.ndim == 1 else '..., '}{inner}]",
            got=f"input {list(A.shape)}",
        )
    return ShapeError(
        f"{name} cannot multiply {list(A.shape)} by {list(B.shape)}",
        expected="at least one dimension each",
        hint="* for the product with a number",
    )


def _swap(x: TensorType) -> TensorType:
    """The last two dimensions exchanged."""
    rank = x.ndim
    return OPS["Transpose"](x, perm=[*range(rank - 2), rank - 1, rank - 2])


def _rows(x: TensorType, columns: int) -> TensorType:
    """Two-dimensional, of so many columns."""
    if x.ndim == 2:
        return x
    rows = -1 if columns else prod(x.shape[:-1])  # of rows without elements -1 could be any number
    return OPS["Reshape"](x, size_tensor([rows, columns]), allowzero=int(rows != -1))


@MatMul.gradient("A")
def _(g: TensorBase, B: TensorBase, A_shape: tuple[int, ...]) -> TensorBase:
    a, b = len(A_shape), B.ndim
    if b == 1:
        return Mul(g, B) if a == 1 else Mul(_column(g), B)
    if b == 2 and a > 1:
        flat = Gemm(_rows(g, B.shape[1]), B, transB=1)
        return flat if a == 2 else reshape_to(flat, A_shape)
    if a == 1:
        return sum_to(MatMul(B, g) if b == 2 else _flat(MatMul(B, _column(g))), A_shape)
    return sum_to(MatMul(g, _swap(B)), A_shape)


@MatMul.gradient("B")
def _(g: TensorBase, A: TensorBase, B_shape: tuple[int, ...]) -> TensorBase:
    a, b = A.ndim, len(B_shape)
    if a == 1:
        return Mul(g, A) if b == 1 else Mul(_column(A), g if b == 2 else _row(g))
    if b == 1:
        return MatMul(_vector(g), _rows(A, A.shape[-1]))
    if b == 2:
        return Gemm(_rows(A, A.shape[-1]), _rows(g, B_shape[1]), transA=1)
    return sum_to(MatMul(_swap(A), g), B_shape)


def _column(x: TensorType) -> TensorType:
    return OPS["Unsqueeze"](x, axes_tensor([-1]))


def _row(x: TensorType) -> TensorType:
    return OPS["Unsqueeze"](x, axes_tensor([-2]))


def _flat(x: TensorType) -> TensorType:
    return OPS["Squeeze"](x, axes_tensor([-1]))


def _vector(x: TensorType) -> TensorType:
    return x if x.ndim == 1 else OPS["Reshape"](x, axes_tensor([-1]))


@operator("Y", kind="product", T=PRODUCTS, amp="lower", batching="own", weights="A B C")
def Gemm(
    xp: XP, A: T, B: T, C: T = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> T:
    """alpha A' B' + beta C: matrices A and B, transposed as asked, and C broadcast to their product. ONNX Gemm."""
    if A.ndim != 2 or B.ndim != 2:
        raise ShapeError(
            f"Gemm cannot multiply {list(A.shape)} by {list(B.shape)}", expected="two matrices", hint="MatMul"
        )
    dtype = A.dtype
    left, right = A.T if transA else A, B.T if transB else B
    if left.shape[1] != right.shape[0]:
        raise _mismatch("Gemm", left, right)
    if dtype in HALF_TYPES:
        left, right = left.astype(float32), right.astype(float32)
    y = matmul(xp, left, right)
    if alpha != 1.0:
        y = y * alpha
    if C is not None:
        c = C.astype(y.dtype, copy=False)
        if beta != 1.0:
            c = c * beta
        y = xp.add(y, c, out=y) if c.dtype == y.dtype else y + c
    return y if y.dtype == dtype else downcast(y, dtype)


@Gemm.gradient("A")
def _(g: TensorBase, B: TensorBase, alpha: float, transA: int, transB: int) -> TensorBase:
    if transA:
        return Gemm(B, g, alpha=alpha, transA=transB, transB=1)
    return Gemm(g, B, alpha=alpha, transB=1 - transB)


@Gemm.gradient("B")
def _(g: TensorBase, A: TensorBase, alpha: float, transA: int, transB: int) -> TensorBase:
    if transB:
        return Gemm(g, A, alpha=alpha, transA=1, transB=transA)
    return Gemm(A, g, alpha=alpha, transA=1 - transA)


@Gemm.gradient("C")
def _(g: TensorBase, C_shape: tuple[int, ...], beta: float) -> TensorBase:
    g = sum_to(g, C_shape)
    return g if beta == 1.0 else Mul(g, constant(beta, g))
