"""The iteration of a GradScaler in operators, for a step that `ox.compile` records: what is looked at is a tensor, and
a skipped step gives everything that it wrote its old value back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from ox.amp.unscaling import with_gradients
from ox.core import operator
from ox.core.constants import scalar
from ox.core.mode import MODE, cannot_record, switch_mode
from ox.core.operator import OPS
from ox.core.promotion import cast
from ox.core.tensor import TensorBase, is_tensor
from ox.devices import cuda_state
from ox.dtypes import float32, float64
from ox.errors import RecordError


def scaled(scale: TensorBase, x: TensorBase) -> TensorBase:
    """The tensor times the scale, in the types of `GradScaler.scale`."""
    if x.array.dtype.itemsize > 2:
        return OPS["Mul"](x, cast(scale, x.array.dtype))
    made = OPS["Mul"](cast(x, float32), scale)
    return made if not x.array.ndim else cast(made, x.array.dtype)


def unscaled(scale: TensorBase, optimizer: Any) -> Any:
    """Divide all gradients in place. A tensor: whether one held an infinity or NaN; None if there are none."""
    found: list[Any] = []
    with switch_mode(grad=False, autocast=None):
        factor = cast(OPS["Div"](scalar(1.0, float64), cast(scale, float64)), float32)
        for g in (parameter.grad for parameter in with_gradients(optimizer)):
            if g.is_sparse:
                cannot_record(RecordError("sparse gradients are unscaled"))
                continue
            # zero where all are finite, else NaN
            found.append(cast(OPS["ReduceSum"](OPS["Mul"](g, scalar(0.0, g.array.dtype)), keepdims=0), float32))
            g.mul_(cast(factor, g.array.dtype))
        return None if not found else OPS["IsNaN"](reduce(OPS["Add"], found))


def step(found: TensorBase, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The optimizer's step, undone where `found` is true."""
    recording: Any = MODE.get().recording
    params = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    if any(p not in optimizer.state for p in params):
        recording.refuse(RecordError("the optimizer has no state yet"), again=True)
        return None if found.array.item() else optimizer.step(*args, **kwargs)
    written = [*params, *(t for p in params for t in optimizer.state[p].values() if is_tensor(t))]
    before = []
    for tensor in written:
        old = operator.make_tensor(cuda_state.copy(tensor.array))
        recording.set_value(old, tensor)
        before.append(old)
    made = optimizer.step(*args, **kwargs)
    with switch_mode(grad=False, autocast=None):
        for tensor, old in zip(written, before, strict=True):
            if recording.value(tensor) is not recording.value(old):
                tensor.assign(OPS["Where"](found, old, tensor), "GradScaler.step")
    return made


def update(scaler: Any, found: Sequence[TensorBase]) -> None:
    """Scale, growth tracker and the count of skipped steps after an iteration."""
    scale, tracker, skipped = scaler._scale_tensor, scaler._tracker_tensor, scaler._skipped_tensor
    kind = tracker.array.dtype
    where = OPS["Where"]
    with switch_mode(grad=False, autocast=None), np.errstate(over="ignore"):
        bad = reduce(OPS["Or"], found)
        wide = cast(scale, float64)
        smaller = cast(OPS["Mul"](wide, scalar(float(scaler._backoff_factor), float64)), float32)
        larger = cast(OPS["Mul"](wide, scalar(float(scaler._growth_factor), float64)), float32)
        larger = where(OPS["IsInf"](larger), scale, larger)
        good = OPS["Add"](tracker, scalar(1, kind))
        grows = OPS["Equal"](good, scalar(scaler._growth_interval, kind))
        zero = scalar(0, kind)
        counted = where(bad, OPS["Add"](skipped, scalar(1, kind)), zero)
        good = where(bad, zero, where(grows, zero, good))
        scale.assign(where(bad, smaller, where(grows, larger, scale)), "GradScaler.update")
        tracker.assign(good, "GradScaler.update")
        skipped.assign(counted, "GradScaler.update")
