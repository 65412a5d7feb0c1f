"""Cross entropies of rows of scores as ox trains with them: forward and backward are one call each.

Those of scores of float16 and bfloat16 are computed in float32. So are the losses, the logarithms and the cotangents,
of which halves would lose digits.
"""

from typing import Any

from ox.core.constants import axes_tensor, constant, number, positions
from ox.core.function import function
from ox.core.operator import OPS
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import T, Tind, U
from ox.dtypes import FLOATS, int32, int64, onnx_type
from ox.ops.elementwise.arithmetic import Add, Div, Exp, Mul, Sub
from ox.ops.elementwise.comparison import Equal, Not, Where
from ox.ops.nn.normalization import as_type, computed_type

__all__ = [
    "CrossEntropy",
    "MeanCrossEntropy",
    "MeanSmoothedCrossEntropy",
    "SoftCrossEntropy",
    "WeightedCrossEntropy",
]

CLASSES = (int32, int64)


@function("loss logs", kind="loss", fused=True, T=FLOATS, U=FLOATS, Tind=CLASSES, amp="float32")
def CrossEntropy(scores: T, target: Tind, *, ignore_index: int = -100) -> tuple[U, U]:
    """log(sum(exp(scores))) - scores[target] for each row of scores [N, C] and its class in target [N], and these
    logarithms [N]. A target of `ignore_index` costs 0; other targets must be classes.

    `torch.nn.functional.cross_entropy` with reduction="none".
    """
    scores, counts = _widely(scores), _counts(target, ignore_index)
    classes = OPS["Unsqueeze"](Where(counts, target, number(0, target.dtype)), axes_tensor([1]))
    logs = OPS["ReduceLogSumExp"](scores, axes_tensor([1]), keepdims=0)
    picked = OPS["Squeeze"](OPS["GatherElements"](scores, classes, axis=1), axes_tensor([1]))
    return Where(counts, Sub(logs, picked), constant(0, scores)), logs


def _widely(x: TensorType) -> TensorType:
    return as_type(x, computed_type(x.dtype))


def _counts(target: TensorType, ignore_index: int) -> TensorType:
    return Not(Equal(target, number(ignore_index, target.dtype)))


@function("loss logs count", kind="loss", fused=True, T=FLOATS, U=FLOATS, Tind=CLASSES, amp="float32")
def MeanCrossEntropy(scores: T, target: Tind, *, ignore_index: int = -100) -> tuple[U, U, U]:
    """The mean of CrossEntropy over the targets that are not ignored (NaN if all are), the logarithms, and how many
    targets these are. `torch.nn.functional.cross_entropy`."""
    losses, logs = CrossEntropy.body(scores, target, ignore_index=ignore_index)
    counted = OPS["Cast"](_counts(target, ignore_index), to=onnx_type(losses.dtype))
    count = OPS["ReduceSum"](counted, keepdims=0)
    return Div(OPS["ReduceSum"](losses, keepdims=0), count), logs, count


@function("dX", kind="gradient", fused=True, T=FLOATS, U=FLOATS, Tind=CLASSES, amp="widest")
def CrossEntropyGradient(g: U, scores: T, target: Tind, logs: U, *, ignore_index: int = -100) -> T:
    """The gradient of the scores from a cotangent g [N] of the losses, or [] for each of them: the softmax,
    less 1 at the target."""
    kind, scores, along = scores.dtype, _widely(scores), axes_tensor([1])
    counts = _counts(target, ignore_index)
    classes = OPS["Unsqueeze"](OPS["Cast"](target, to=onnx_type(int64)), along)
    chosen = Equal(classes, positions(scores.shape[1]))
    softmax = Exp(Sub(scores, OPS["Unsqueeze"](logs, along)))
    slope = Where(chosen, Sub(softmax, constant(1, scores)), softmax)
    back = Mul(slope, OPS["Reshape"](g, axes_tensor([-1, 1])))
    return as_type(Where(OPS["Unsqueeze"](counts, along), back, constant(0, scores)), kind)


@CrossEntropy.gradient("scores")
def _(
    g: TensorBase | None,
    g_logs: TensorBase | None,
    scores: TensorBase,
    target: TensorBase,
    logs: TensorBase,
    ignore_index: int,
) -> TensorBase | None:
    back = None if g is None else CrossEntropyGradient(g, scores, target, logs, ignore_index=ignore_index)
    return _with_logs(back, g_logs, scores, logs)


def _counted(target: TensorBase, ignore_index: int) -> tuple[TensorBase, TensorBase]:
    """Which targets count; the classes, 0 where they do not."""
    counts = _counts(target, ignore_index)
    return counts, Where(counts, target, number(0, target.dtype))


def _column(x: TensorBase) -> TensorBase:
    made: TensorBase = OPS["Unsqueeze"](x, axes_tensor([1]))
    return made


def _classes(x: TensorBase) -> TensorBase:
    """The number of columns of x, in its element type."""
    made: TensorBase = OPS["Cast"](
        OPS["Squeeze"](OPS["Shape"](x, start=1, end=2), axes_tensor([0])), to=onnx_type(x.array.dtype)
    )
    return made


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
    return _with_logs(back, g_logs, scores, logs)


@function("loss logs count", kind="loss", fused=True, T=FLOATS, U=FLOATS, Tind=CLASSES, amp="float32")
def MeanSmoothedCrossEntropy(
    scores: T, target: Tind, weight: T = None, *, smoothing: float, ignore_index: int = -100
) -> tuple[U, U, U]:
    """MeanCrossEntropy where a part `smoothing` of each target is spread over all classes, with a weight for each
    class [C], or 1 for all; `count` is the sum of the targets' weights. `torch.nn.functional.cross_entropy` with
    label_smoothing and weight."""
    losses, logs, spreads = WeightedCrossEntropy.body(scores, target, weight, ignore_index=ignore_index)
    counted = OPS["Cast"](_counts(target, ignore_index), to=onnx_type(losses.dtype))
    if weight is not None:
        counted = Mul(counted, OPS["Gather"](_widely(weight), _counted(target, ignore_index)[1], axis=0))
    count = OPS["ReduceSum"](counted, keepdims=0)
    direct, spread = (OPS["ReduceSum"](each, keepdims=0) for each in (losses, spreads))
    if weight is None:
        total = Add(Mul(direct, constant(1 - smoothing, direct)), Mul(spread, constant(smoothing, direct)))
        return Div(total, count), logs, count
    loss = Mul(Div(direct, count), constant(1 - smoothing, direct))  # NaN of weights of 0, whatever the other part is
    return Add(loss, Mul(Div(spread, count), constant(smoothing, direct))), logs, count


@function("dX", kind="gradient", fused=True, T=FLOATS, U=FLOATS, Tind=CLASSES, amp="widest")
def SmoothedCrossEntropyGradient(
    g: U, scores: T, target: Tind, logs: U, weight: T = None, *, smoothing: float, ignore_index: int = -100
) -> T:
    """The gradient of the scores from a cotangent g [] of each loss with label smoothing: the softmax, less the
    smoothed target, with the weights [C] of the classes."""
    if weight is not None:
        own = OPS["Expand"](g, OPS["Shape"](target))
        parts = [Mul(own, constant(part, own)) for part in (1 - smoothing, smoothing)]
        return WeightedCrossEntropyGradient.body(scores, target, logs, weight, *parts, ignore_index=ignore_index)
    kind, scores, along = scores.dtype, _widely(scores), axes_tensor([1])
    classes = OPS["Unsqueeze"](OPS["Cast"](target, to=onnx_type(int64)), along)
    rest = Div(constant(smoothing, scores), _classes(scores))
    softmax = Sub(Exp(Sub(scores, _column(logs))), rest)
    chosen = Equal(classes, positions(scores.shape[1]))
    slope = Where(chosen, Sub(softmax, constant(1 - smoothing, scores)), softmax)
    return as_type(Where(_column(_counts(target, ignore_index)), Mul(slope, g), constant(0, scores)), kind)


@MeanSmoothedCrossEntropy.gradient("scores")
def _(
    g: TensorBase | None,
    g_logs: TensorBase | None,
    g_count: TensorBase | None,
    scores: TensorBase,
    target: TensorBase,
    weight: TensorBase | None,
    logs: TensorBase,
    count: TensorBase,
    smoothing: float,
    ignore_index: int,
) -> TensorBase | None:
    back: Any = None
    if g is not None:
        back = SmoothedCrossEntropyGradient(
            Div(g, count), scores, target, logs, weight, smoothing=smoothing, ignore_index=ignore_index
        )
    return _with_logs(back, g_logs, scores, logs)


@function("loss logs spread", kind="loss", fused=True, T=FLOATS, U=FLOATS, Tind=CLASSES, amp="float32")
def WeightedCrossEntropy(
    scores: T, target: Tind, weight: T = None, *, ignore_index: int = -100, outputs: int = 3
) -> tuple[U, U, U]:
    """The two parts of a cross entropy with label smoothing, for each row of scores [N, C] and its class in target [N]:
    weight[target]·(log(sum(exp(scores))) - scores[target]), and the mean of the same over all classes. Between them,
    the logarithms. A target of `ignore_index` costs 0; other targets must be classes. weight [C], or 1 for all.

    `torch.nn.functional.cross_entropy` with reduction="none" is (1 - label_smoothing)·loss + label_smoothing·spread.
    """
    scores, along = _widely(scores), axes_tensor([1])
    counts, classes = _counted(target, ignore_index)
    logs = OPS["ReduceLogSumExp"](scores, along, keepdims=0)
    loss = Sub(logs, OPS["Squeeze"](OPS["GatherElements"](scores, _column(classes), axis=1), along))
    every = Sub(_column(logs), scores)
    if weight is not None:
        weight = _widely(weight)
        loss, every = Mul(loss, OPS["Gather"](weight, classes, axis=0)), Mul(every, weight)
    nothing = constant(0, scores)
    spread = OPS["ReduceMean"](every, along, keepdims=0)
    return Where(counts, loss, nothing), logs, Where(counts, spread, nothing)


@function("dX", kind="gradient", fused=True, T=FLOATS, U=FLOATS, Tind=CLASSES, amp="widest")
def WeightedCrossEntropyGradient(
    scores: T, target: Tind, logs: U, weight: T = None, g: U = None, g_spread: U = None, *, ignore_index: int = -100
) -> T:
    """The gradient of the scores from cotangents [N] of the losses and of the spreads, at least one of them."""
    kind, scores = scores.dtype, _widely(scores)
    weight = weight if weight is None else _widely(weight)
    counts, classes = _counted(target, ignore_index)
    softmax = Exp(Sub(scores, _column(logs)))
    parts = []
    if g is not None:
        chosen = Equal(_column(OPS["Cast"](target, to=onnx_type(int64))), positions(scores.shape[1]))
        slope = Where(chosen, Sub(softmax, constant(1, scores)), softmax)
        parts.append(Mul(slope, _column(g if weight is None else Mul(g, OPS["Gather"](weight, classes, axis=0)))))
    if g_spread is not None:
        size = _classes(scores)
        total = size if weight is None else OPS["ReduceSum"](weight, keepdims=0)
        slope = Sub(Mul(softmax, total), constant(1, scores) if weight is None else weight)
        parts.append(Mul(slope, _column(Div(g_spread, size))))
    back = parts[0] if len(parts) == 1 else Add(*parts)
    return as_type(Where(_column(counts), back, constant(0, scores)), kind)


@WeightedCrossEntropy.gradient("scores")
def _(
    g: TensorBase | None,
    g_logs: TensorBase | None,
    g_spread: TensorBase | None,
    scores: TensorBase,
    target: TensorBase,
    weight: TensorBase | None,
    logs: TensorBase,
    ignore_index: int,
) -> TensorBase | None:
    back: Any = None
    if g is not None or g_spread is not None:
        back = WeightedCrossEntropyGradient(scores, target, logs, weight, g, g_spread, ignore_index=ignore_index)
    return _with_logs(back, g_logs, scores, logs)


def _with_logs(back: Any, g_logs: TensorBase | None, scores: TensorBase, logs: TensorBase) -> Any:
    """A gradient of the scores, and what comes from the logarithms."""
    if g_logs is None:
        return back
    from_logs = as_type(Mul(Exp(Sub(_widely(scores), _column(logs))), _column(g_logs)), scores.dtype)
    return from_logs if back is None else Add(back, from_logs)


def _smoothed(target: TensorBase, weight: TensorBase | None, smoothing: float) -> TensorBase:
    """(1 - smoothing)·target + smoothing / C, times the weights."""
    if smoothing:
        target = Add(Mul(target, constant(1 - smoothing, target)), Div(constant(smoothing, target), _classes(target)))
    return target if weight is None else Mul(target, weight)


@function("loss logs", kind="loss", fused=True, T=FLOATS, amp="float32")
def SoftCrossEntropy(scores: T, target: T, weight: T = None, *, smoothing: float = 0.0) -> tuple[T, T]:
    """The cross entropy of each row of scores [N, C] with probabilities target [N, C], of which a part `smoothing` is
    spread over all classes; and log(sum(exp(scores))) [N]. weight [C], or 1 for all.

    `torch.nn.functional.cross_entropy` of probabilities with reduction="none".
    """
    logs = OPS["ReduceLogSumExp"](scores, axes_tensor([1]), keepdims=0)
    costs = Mul(_smoothed(target, weight, smoothing), Sub(_column(logs), scores))
    return OPS["ReduceSum"](costs, axes_tensor([1]), keepdims=0), logs


@function("dX", kind="gradient", fused=True, T=FLOATS, amp="widest")
def SoftCrossEntropyGradient(g: T, scores: T, target: T, logs: T, weight: T = None, *, smoothing: float = 0.0) -> T:
    """The gradient of the scores from a cotangent g [N] of the losses."""
    shares = _smoothed(target, weight, smoothing)
    total = OPS["ReduceSum"](shares, axes_tensor([1]), keepdims=1)
    return Mul(Sub(Mul(Exp(Sub(scores, _column(logs))), total), shares), _column(g))


@SoftCrossEntropy.gradient("scores", "target")
def _(
    g: TensorBase | None,
    g_logs: TensorBase | None,
    scores: TensorBase,
    target: TensorBase,
    weight: TensorBase | None,
    logs: TensorBase,
    smoothing: float,
    needs: Any,
) -> tuple[TensorBase | None, TensorBase | None]:
    back: Any = None
    to_target: Any = None
    if g is not None and needs[0]:
        back = SoftCrossEntropyGradient(g, scores, target, logs, weight, smoothing=smoothing)
    if g is not None and needs[1]:
        to_target = Mul(Sub(_column(logs), scores), _column(Mul(g, constant(1 - smoothing, g))))
        to_target = to_target if weight is None else Mul(to_target, weight)
    return _with_logs(back, g_logs, scores, logs), to_target
