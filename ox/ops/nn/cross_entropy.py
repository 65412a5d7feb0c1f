"""The cross entropy of rows of scores as ox trains with it: forward and backward are one call each."""

from typing import Any

from ox.core.constants import axes_tensor, constant, number, positions
from ox.core.function import function
from ox.core.operator import OPS
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import T, Tind
from ox.dtypes import FLOATS, int32, int64, onnx_type
from ox.ops.elementwise.arithmetic import Add, Div, Exp, Mul, Sub
from ox.ops.elementwise.comparison import Equal, Not, Where

__all__ = ["CrossEntropy", "MeanCrossEntropy"]

CLASSES = (int32, int64)


@function("loss logs", fused=True, T=FLOATS, Tind=CLASSES, amp="float32")
def CrossEntropy(scores: T, target: Tind, *, ignore_index: int = -100) -> tuple[T, T]:
    """log(sum(exp(scores))) - scores[target] for each row of scores [N, C] and its class in target [N], and these
    logarithms [N]. A target of `ignore_index` costs 0; other targets must be classes.

    `torch.nn.functional.cross_entropy` with reduction="none".
    """
    counts = _counts(target, ignore_index)
    classes = OPS["Unsqueeze"](Where(counts, target, number(0, target.dtype)), axes_tensor([1]))
    logs = OPS["ReduceLogSumExp"](scores, axes_tensor([1]), keepdims=0)
    picked = OPS["Squeeze"](OPS["GatherElements"](scores, classes, axis=1), axes_tensor([1]))
    return Where(counts, Sub(logs, picked), constant(0, scores)), logs


def _counts(target: TensorType, ignore_index: int) -> TensorType:
    return Not(Equal(target, number(ignore_index, target.dtype)))


@function("loss logs count", fused=True, T=FLOATS, Tind=CLASSES, amp="float32")
def MeanCrossEntropy(scores: T, target: Tind, *, ignore_index: int = -100) -> tuple[T, T, T]:
    """The mean of CrossEntropy over the targets that are not ignored (NaN if all are), the logarithms, and how many
    targets these are. `torch.nn.functional.cross_entropy`."""
    losses, logs = CrossEntropy.body(scores, target, ignore_index=ignore_index)
    counted = OPS["Cast"](_counts(target, ignore_index), to=onnx_type(scores.dtype))
    count = OPS["ReduceSum"](counted, keepdims=0)
    return Div(OPS["ReduceSum"](losses, keepdims=0), count), logs, count


@function("dX", fused=True, T=FLOATS, Tind=CLASSES, amp="widest")
def CrossEntropyGradient(g: T, scores: T, target: Tind, logs: T, *, ignore_index: int = -100) -> T:
    """The gradient of the scores from a cotangent g [N] of the losses, or [] for each of them: the softmax,
    less 1 at the target."""
    along = axes_tensor([1])
    counts = _counts(target, ignore_index)
    classes = OPS["Unsqueeze"](OPS["Cast"](target, to=onnx_type(int64)), along)
    chosen = Equal(classes, positions(scores.shape[1]))
    softmax = Exp(Sub(scores, OPS["Unsqueeze"](logs, along)))
    slope = Where(chosen, Sub(softmax, constant(1, scores)), softmax)
    return Where(
        OPS["Unsqueeze"](counts, along), Mul(slope, OPS["Reshape"](g, axes_tensor([-1, 1]))), constant(0, scores)
    )


@CrossEntropy.gradient("scores")
def _(
    g: TensorBase | None,
    g_logs: TensorBase | None,
    scores: TensorBase,
    target: TensorBase,
    logs: TensorBase,
    ignore_index: int,
) -> TensorBase | None:
    back: Any = None
    if g is not None:
        back = CrossEntropyGradient(g, scores, target, logs, ignore_index=ignore_index)
    return back if g_logs is None else _with_logs(back, g_logs, scores, logs)


def _with_logs(back: TensorBase | None, g: TensorBase, scores: TensorBase, logs: TensorBase) -> TensorBase:
    """The gradient of the scores with that by their logarithms."""
    along = axes_tensor([1])
    from_logs = Mul(Exp(Sub(scores, OPS["Unsqueeze"](logs, along))), OPS["Unsqueeze"](g, along))
    return from_logs if back is None else Add(back, from_logs)


@MeanCrossEntropy.gradient("scores")
def _(
    g: TensorBase | None,
    g_logs: TensorBase | None,
    g_count: TensorBase | None,
    scores: TensorBase,
    target: TensorBase,
    logs: TensorBase,
    count: TensorBase,
    ignore_index: int,
) -> TensorBase | None:
    back: Any = None
    if g is not None:
        back = CrossEntropyGradient(Div(g, count), scores, target, logs, ignore_index=ignore_index)
    return back if g_logs is None else _with_logs(back, g_logs, scores, logs)
