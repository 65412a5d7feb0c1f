"""Parts of matrices: Trilu EyeLike."""

from ox.core.operator import operator
from ox.core.tensor import TensorBase
from ox.core.types import T1, T2, XP, HostInt64, T
from ox.dtypes import ALL, FROM_ONNX
from ox.errors import ArgumentError, ShapeError

__all__ = ["EyeLike", "Trilu"]


@operator("output", kind="padding", T=ALL, amp="widest", batching="own")
def Trilu(xp: XP, input: T, k: HostInt64 = None, *, upper: int = 1) -> T:
    """Zeros below the k-th diagonal of every matrix, or with `upper=0` above it. ONNX Trilu."""
    if input.ndim < 2:
        raise ShapeError("Trilu takes matrices", expected="two dimensions or more", got=str(list(input.shape)))
    offset = 0 if k is None else int(k.reshape(-1)[0])
    rows, columns = input.shape[-2:]
    # beyond the borders every diagonal is the same, and NumPy's counting does not overflow
    offset = max(-rows - 1, min(offset, columns + 1))
    return (xp.triu if upper else xp.tril)(input, offset)


@Trilu.gradient("input")
def _(g: TensorBase, k: TensorBase | None, upper: int) -> TensorBase:
    return Trilu(g, k, upper=upper)


@operator("output", kind="creation", T1=ALL, T2=ALL, amp="widest", batching="shared", nondifferentiable="input")
def EyeLike(xp: XP, input: T1, *, dtype: int | None = None, k: int = 0) -> T2:
    """Ones on the k-th diagonal of a matrix of zeros with the sizes of `input`, by default of its type. ONNX
    EyeLike."""
    if input.ndim != 2:
        raise ShapeError("EyeLike takes a matrix", got=str(list(input.shape)))
    if dtype is not None and dtype not in FROM_ONNX:
        raise ArgumentError(f"EyeLike of TensorProto type {dtype}, which ox does not compute with")
    return xp.eye(*input.shape, k=k, dtype=input.dtype if dtype is None else FROM_ONNX[dtype])
