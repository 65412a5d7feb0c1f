"""Connectionist temporal classification (Graves et al., ICML 2006): the loss of a sequence without its alignment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox import ops
from ox.amp.policy import by_policy
from ox.core.constants import ints, on_device_of, scalar, scalar_like
from ox.core.mode import MODE
from ox.core.operator import as_input
from ox.core.promotion import upcast_half
from ox.core.symbolic import Dim, size_tensor
from ox.dtypes import onnx_type
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.nn.functional.arguments import one_of
from ox.nn.functional.reduction import REDUCTIONS, floating, reduced
from ox.ops.recurrent.time_loop import over_time
from ox.tensors.tensor import Tensor

__all__ = ["ctc_loss"]


INT64 = np.dtype(np.int64)
NEVER = -1e30  # the logarithm of no path at all; -inf would make NaN of differences


@by_policy
@upcast_half
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the log-probability that log_probs spell the targets, summed over all alignments.
    `torch.nn.functional.ctc_loss`.

    The forward algorithm in logarithms, one step a time step. A recording for a file makes a Scan of it where the
    number of time steps T or of target places S is open, and unrolls it otherwise. The gradient is that of the formula:
    it is PyTorch's behind a log_softmax, where PyTorch already counts in what a log_softmax takes back. It may be
    differentiated again.

    Args:
        log_probs: [T, N, C], or [T, C] without a batch.
        targets: whole numbers other than `blank`, of any type: [N, S] padded, or all of them one after another.
        input_lengths: [N], each up to T.
        target_lengths: [N], each up to S.
        reduction: "mean" divides each loss by its target's length first.
        zero_infinity: a target that cannot be spelled in its time gives 0 and a gradient of 0, not infinity and NaN.
    """
    one_of(reduction, "reduction", REDUCTIONS)
    floating("ctc_loss", log_probs)
    single = log_probs.array.ndim == 2
    if log_probs.array.ndim not in (2, 3):
        raise ShapeError("ctc_loss takes log_probs [T, N, C]", got=str(list(log_probs.static_shape)))
    logp = ops.Unsqueeze(log_probs, ints(1)) if single else log_probs
    steps, batch, count = logp.static_shape
    if not 0 <= blank < count:
        raise ArgumentError("blank is one of the classes", expected=f"0 to {count - 1}", got=str(blank))
    # they are looked at, so that on a GPU they come to the host
    lengths = _lengths("input_lengths", input_lengths, batch).to("cpu")
    sizes = _lengths("target_lengths", target_lengths, batch).to("cpu")
    labels = _padded(ops.Cast(targets, to=onnx_type(INT64)).to("cpu"), sizes, batch, single)
    _check(labels, lengths, sizes, steps, count, blank)
    labels, lengths, sizes = (each.to(logp.device) for each in (labels, lengths, sizes))
    losses = _forward(logp, labels, lengths, sizes, blank)

    zero = scalar_like(0.0, losses)
    impossible = ops.Greater(losses, scalar_like(-NEVER / 2, losses))
    if not zero_infinity and logp.node is not None and MODE.get().grad:
        losses = ops.Add(losses, _without_gradient(logp, impossible, lengths))
    losses = ops.Where(impossible, zero if zero_infinity else scalar_like(float("inf"), losses), losses)
    if reduction == "mean":
        divisor = ops.Max(sizes, scalar(1, INT64))
        losses = ops.Div(losses, ops.Cast(divisor, to=onnx_type(losses.array.dtype)))
    elif reduction == "none" and single:
        return ops.Squeeze(losses, ints(0))
    return reduced(losses, reduction)


def _without_gradient(logp: Tensor, impossible: Tensor, lengths: Tensor) -> Tensor:
    """[N], 0 in value but for impossible targets: the gradient of theirs is NaN in each time step that they have."""
    kind = logp.array.dtype
    steps = on_device_of(_numbers(logp.shape[0]), logp)
    alive = ops.Less(ops.Unsqueeze(steps, ints(1)), ops.Unsqueeze(lengths, ints(0)))
    undefined = ops.Unsqueeze(ops.And(alive, ops.Unsqueeze(impossible, ints(0))), ints(2))
    zero = scalar(0.0, kind)
    factor = ops.Where(undefined, scalar(float("nan"), kind), zero)
    return ops.ReduceSum(ops.Mul(ops.Where(undefined, logp, zero), factor), ints(0, 2), keepdims=0)


def _lengths(name: str, given: Any, batch: int) -> Tensor:
    """int64 [N]."""
    made = given if isinstance(given, Tensor) else as_input(np.asarray(given, np.int64))
    if made.array.dtype.kind not in "iu":
        raise DTypeError(f"{name} are integers", got=str(made.array.dtype))
    if made.array.size != batch or made.array.ndim > 1:
        raise ShapeError(f"{name} has one number a sequence", expected=f"[{batch}]", got=str(list(made.static_shape)))
    made = made if made.array.ndim else ops.Unsqueeze(made, ints(0))
    return made if made.array.dtype == INT64 else ops.Cast(made, to=onnx_type(INT64))


def _padded(targets: Tensor, sizes: Tensor, batch: int, single: bool) -> Tensor:
    """[N, S]; values beyond a target's length are ignored."""
    if targets.array.ndim == 2:
        if targets.static_shape[0] != batch:
            raise ShapeError("targets has one row a sequence", expected=f"[{batch}, S]", got=str(targets.static_shape))
        return targets
    if targets.array.ndim != 1:
        raise ShapeError("ctc_loss takes targets [N, S] or [sum]", got=str(list(targets.static_shape)))
    total, longest = int(sizes.array.sum()), int(sizes.array.max(initial=0))
    if single and MODE.get().recording is not None:
        return ops.Unsqueeze(targets, ints(0))
    if targets.static_shape[0] != total and not (single and targets.static_shape[0] >= total):
        raise ShapeError(
            "targets must have the sum of target_lengths", expected=f"[{total}]", got=str(targets.static_shape)
        )
    first = ops.Sub(ops.CumSum(sizes, scalar(0, INT64)), sizes)
    within = as_input(np.arange(longest, dtype=np.int64))
    places = ops.Add(ops.Unsqueeze(first, ints(1)), within)
    # one value more, so that there is something to read where all targets are empty
    last = ops.Sub(ops.Cast(ops.Size(targets), to=onnx_type(INT64)), scalar(1, INT64))
    return ops.Gather(targets, ops.Min(places, last), axis=0) if longest else _none(sizes)


def _none(sizes: Tensor) -> Tensor:
    """int64 [N, 0]."""
    return ops.Slice(ops.Unsqueeze(sizes, ints(1)), ints(0), ints(0), ints(1))


def _check(labels: Tensor, lengths: Tensor, sizes: Tensor, steps: int, count: int, blank: int) -> None:
    if MODE.get().recording is not None or not isinstance(labels.array, np.ndarray):
        return
    t, s = lengths.array, sizes.array
    if t.size and (t.min() < 0 or t.max() > steps):
        raise ShapeError("input_lengths go beyond log_probs", expected=f"0 to {steps}", got=str(t))
    if s.size and (s.min() < 0 or s.max() > labels.static_shape[1]):
        raise ShapeError("target_lengths go beyond targets", expected=f"0 to {labels.static_shape[1]}", got=str(s))
    used = labels.array[np.arange(labels.static_shape[1]) < s[:, None]]
    if used.size and (used.min() < 0 or used.max() >= count or (used == blank).any()):
        raise ShapeError("targets must be classes other than blank", expected=f"0 to {count - 1} without {blank}")


def _forward(logp: Tensor, labels: Tensor, lengths: Tensor, sizes: Tensor, blank: int) -> Tensor:
    """Minus the log-likelihoods [N]; about -NEVER where nothing fits."""
    kind = logp.array.dtype
    if kind.itemsize == 2:
        wide = _forward(ops.Cast(logp, to=onnx_type(np.dtype(np.float32))), labels, lengths, sizes, blank)
        return ops.Cast(ops.Clip(wide, None, scalar(3e38, wide.array.dtype)), to=onnx_type(kind))
    steps, places = logp.shape[0], labels.shape[1]
    recording = MODE.get().recording
    is_open = recording is not None and not recording.guarded and any(isinstance(n, Dim) for n in (steps, places))
    if not is_open:
        steps, places = logp.static_shape[0], labels.static_shape[1]
    states = 2 * places + 1
    several = is_open or places > 0
    never, zero = scalar(NEVER, kind), scalar(0.0, kind)
    # blank, label, blank, label, ..., blank
    blanks = on_device_of(ops.Expand(scalar(blank, INT64), ops.Shape(ops.Unsqueeze(labels, ints(2)))), labels)
    pairs = ops.Concat(blanks, ops.Unsqueeze(labels, ints(2)), axis=2)
    last = on_device_of(ops.Slice(ops.Expand(scalar(blank, INT64), _rows(labels)), ints(0), ints(1), ints(1)), labels)
    spelled = ops.Concat(ops.Reshape(pairs, ints(0, -1), allowzero=0) if several else _none(sizes), last, axis=1)
    number_of = on_device_of(_numbers(states), logp)
    ends = ops.Unsqueeze(ops.Add(sizes, sizes), ints(1))  # the last state of each sequence
    inside = ops.LessOrEqual(number_of, ends)
    known = ops.Where(inside, spelled, scalar(blank, INT64))
    # a label may follow the one before it without a blank, unless they are the same
    if several:
        before = ops.Slice(ops.Pad(known, ints(2, 0), scalar(-1, INT64), ints(1)), ints(0), ints(-2), ints(1))
        skips = ops.And(ops.Not(ops.Equal(known, before)), ops.Not(ops.Equal(known, scalar(blank, INT64))))
    index = ops.Expand(ops.Unsqueeze(known, ints(0)), ops.Concat(size_tensor([steps]), ops.Shape(known), axis=0))
    # before the first step there is one path, in front of state 0, with probability 1
    start = ops.Where(ops.Equal(number_of, scalar(0, INT64)), zero, never)
    alpha = ops.Where(inside, start, never)
    going = ops.Less(ops.Unsqueeze(on_device_of(_numbers(steps), logp), ints(1, 2)), ops.Unsqueeze(lengths, ints(0, 2)))

    def step(states: list[Any], now: list[Any]) -> tuple[list[Any], list[Any]]:
        (alpha,), (emission, alive) = states, now
        ways = [alpha]
        if several:
            ways += [_shifted(alpha, 1), ops.Where(skips, _shifted(alpha, 2), never)]
        return [ops.Where(alive, ops.Add(_log_sum(ways), emission), alpha)], []

    if is_open or steps:
        emitted = ops.GatherElements(logp, index, axis=2)
        (emission, alive), rest = zip(*(_first_and_rest(x) for x in (emitted, going)), strict=True)
        first = ops.Where(ops.LessOrEqual(number_of, scalar(1, INT64)), zero, never)
        alpha = ops.Where(alive, ops.Add(ops.Where(inside, first, never), emission), alpha)
        if is_open:
            (alpha,), _ = over_time(step, [alpha], rest, False, results=0)
        elif steps > 1:
            for now in zip(*(_parts(x, steps - 1) for x in rest), strict=True):
                (alpha,), _ = step([alpha], list(now))
    final = [ops.GatherElements(alpha, ends, axis=1)]
    if several:
        one = scalar(1, INT64)
        label = ops.GatherElements(alpha, ops.Max(ops.Sub(ends, one), scalar(0, INT64)), axis=1)
        final.append(ops.Where(ops.Greater(ends, scalar(0, INT64)), label, never))
    return ops.Neg(ops.Squeeze(_log_sum(final), ints(1)))


def _numbers(count: int) -> Tensor:
    """int64 [count]."""
    if isinstance(count, Dim):
        return ops.Range(scalar(0, INT64), scalar(count, INT64), scalar(1, INT64))
    return as_input(np.arange(count, dtype=np.int64))


def _first_and_rest(x: Tensor) -> tuple[Tensor, Tensor]:
    """The first step, without its axis, and the others."""
    return ops.Gather(x, scalar(0, INT64), axis=0), ops.Slice(x, ints(1), ints(2**62), ints(0))


def _parts(x: Tensor, count: int) -> list[Tensor]:
    """Each step, without its axis."""
    parts = ops.Split(x, axis=0, num_outputs=count, outputs=count) if count > 1 else [x]
    return [ops.Squeeze(part, ints(0)) for part in parts]


def _rows(labels: Tensor) -> Tensor:
    """The shape [N, 1]."""
    return ops.Concat(ops.Shape(labels, start=0, end=1), ints(1), axis=0)


def _shifted(alpha: Tensor, by: int) -> Tensor:
    """The same `by` states later."""
    padded = ops.Pad(alpha, ints(by, 0), scalar(NEVER, alpha.array.dtype), ints(1))
    return ops.Slice(padded, ints(0), ints(-by), ints(1))


def _log_sum(parts: list[Any]) -> Tensor:
    """log of the sum of exponentials, from the greatest on."""
    if len(parts) == 1:
        return parts[0]
    most = ops.Max(*[x.detach() for x in parts])
    total: Any = None
    for x in parts:
        share = ops.Exp(ops.Sub(x, most))
        total = share if total is None else ops.Add(total, share)
    return ops.Add(most, ops.Log(total))
