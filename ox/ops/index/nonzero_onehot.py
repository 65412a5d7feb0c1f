"""Choosing by truth and by number: NonZero Compress OneHot."""

from ox.core.broadcast import expand_to, reshape_to
from ox.core.constants import axes_tensor, ones, zeros
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase
from ox.core.types import T1, T3, XP, HostT2, Int64, T
from ox.dtypes import ALL, INTEGERS, bool_, float16, float32, float64, int64
from ox.errors import ShapeError
from ox.ops.elementwise.arithmetic import Mul, Sub
from ox.ops.index.gather import ScatterElements, product_of

__all__ = ["Compress", "NonZero", "OneHot"]

COUNTS = (*INTEGERS, float16, float32, float64)


@operator("Y", kind="index", T=ALL, amp="widest", batching="each", data_dependent_shape=True)
def NonZero(xp: XP, X: T) -> Int64:
    """The places of what is not zero, row by row: [dimensions, how many]. ONNX NonZero."""
    if not X.ndim:
        return xp.zeros((0, int(bool(X))), int64)
    return xp.stack((X.astype(bool_) if X.dtype.kind == "V" else X).nonzero()).astype(int64, copy=False)


@operator("output", kind="selection", T=ALL, T1=(bool_,), amp="widest", batching="each", data_dependent_shape=True)
def Compress(xp: XP, input: T, condition: T1, *, axis: int | None = None) -> T:
    """The slices along an axis (or, without one, the elements of the flattened input) where `condition` [up to the
    size] is true. ONNX Compress."""
    flat = input.reshape(-1) if axis is None else input
    along = 0 if axis is None else axis
    if condition.ndim != 1 or len(condition) > flat.shape[along]:
        raise ShapeError(
            f"Compress cannot choose from {flat.shape[along]} by a condition {list(condition.shape)}",
            expected=f"one dimension, of at most {flat.shape[along]}",
        )
    return xp.take(flat, condition.nonzero()[0], axis=along)


@Compress.gradient("input")
def _(g: TensorBase, condition: TensorBase, input_shape: tuple[int, ...], axis: int | None) -> TensorBase:
    places = OPS["Squeeze"](NonZero(condition), axes_tensor([0]))
    if axis is None:
        flat = ScatterElements(zeros([product_of(input_shape)], g), places, g)
        return reshape_to(flat, input_shape)
    axis %= len(input_shape)
    column = reshape_to(places, [places.shape[0] if i == axis else 1 for i in range(len(input_shape))])
    return ScatterElements(zeros(input_shape, g), expand_to(column, g.shape), g, axis=axis)  # no place comes twice


@operator(
    "output",
    kind="index",
    sized_by="depth",
    T1=COUNTS,
    T2=COUNTS,
    T3=ALL,
    amp="widest",
    batching="each",
    settings="values",
    nondifferentiable="indices depth",
)
def OneHot(xp: XP, indices: T1, depth: HostT2, values: T3, *, axis: int = -1) -> T3:
    """A new axis of `depth` places that holds values[1] at the place that `indices` names, if it names one in
    [-depth, depth), and values[0] elsewhere. ONNX OneHot."""
    size = int(depth.reshape(-1)[0])
    if values.shape != (2,):
        raise ShapeError("OneHot has a value for off and one for on", expected="values [2]", got=str(values.shape))
    places = xp.expand_dims(indices.astype(int64, copy=False), axis)
    places = xp.where(places < 0, places + size, places)
    along = axis % places.ndim
    every = xp.arange(size).reshape([-1 if i == along else 1 for i in range(places.ndim)])
    return xp.where(places == every, values[1], values[0]).astype(values.dtype, copy=False)


@OneHot.gradient("values")
def _(g: TensorBase, indices: TensorBase, depth: TensorBase, axis: int) -> TensorBase:
    on = OneHot(indices, depth, OPS["Concat"](zeros([1], g), ones([1], g), axis=0), axis=axis)
    to_on = OPS["ReduceSum"](Mul(g, on), keepdims=0)
    to_off = Sub(OPS["ReduceSum"](g, keepdims=0), to_on)
    return OPS["Concat"](*(OPS["Unsqueeze"](each, axes_tensor([0])) for each in (to_off, to_on)), axis=0)
