"""Dropout as files have it. What ox trains with draws from its own counter instead (`ox.nn.functional.dropout`)."""

from ox.core.constants import constant
from ox.core.operator import operator
from ox.core.tensor import TensorBase
from ox.core.types import T1, T2, XP, T
from ox.dtypes import FLOATS, bool_
from ox.errors import ArgumentError
from ox.ops.elementwise.arithmetic import Div, Mul, Sub
from ox.ops.elementwise.comparison import Where
from ox.ops.nn.normalization import as_type
from ox.ops.random.rng import uniform

__all__ = ["Dropout"]


@operator(
    "output mask",
    kind="random",
    T=FLOATS,
    T1=FLOATS,
    T2=(bool_,),
    amp="widest",
    batching="each",
)
def Dropout(
    xp: XP, data: T, ratio: T1 = None, training_mode: T2 = None, *, seed: int | None = None, outputs: int = 1
) -> tuple[T, T2]:
    """In training_mode each element is 0 with probability `ratio` (0.5), else divided by 1 - ratio; the mask says which
    were kept. With a seed the mask is that of NumPy's RandomState, as in onnx.reference. ONNX Dropout."""
    part = 0.5 if ratio is None else float(ratio)
    if not 0 <= part <= 1:
        raise ArgumentError("Dropout's ratio is a probability", expected="0 to 1", got=str(part))
    if training_mode is None or not bool(training_mode) or part == 0:
        kept = data.copy()
        return kept if outputs == 1 else (kept, xp.ones(data.shape, bool))
    mask = xp.asarray(uniform(data.shape, seed, "onnx_dropout") >= part)
    scale = data.dtype.type(1 / (1 - part) if part < 1 else 0)
    made = xp.where(mask, data * scale, data.dtype.type(0))
    return made if outputs == 1 else (made, mask)


@Dropout.gradient("data")
def _(
    g: TensorBase,
    mask: TensorBase,
    ratio: TensorBase | None,
    training_mode: TensorBase | None,
) -> TensorBase:
    if training_mode is None:
        return g
    one = constant(1, g)
    left = Sub(one, constant(0.5, g) if ratio is None else as_type(ratio, g.dtype))
    return Where(mask, Mul(g, Where(training_mode, Div(one, left), one)), constant(0, g))
