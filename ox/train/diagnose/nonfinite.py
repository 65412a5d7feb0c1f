"""Finds the operator that produced NaN or infinity: repeats the forward pass and checks each operator's output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ox import devices
from ox.core.mode import switch_mode
from ox.dtypes import is_floating
from ox.errors import TrainError
from ox.train.batch import tensors

SHOWN = 3  # of an operator's inputs


class _FirstError(TrainError):
    """Raised at the first bad operator; `Operator.__call__` adds the module path and the user's line."""


def diagnose(
    model: Any,
    step: Callable[[Any, Any], Any],
    batch: Any,
    loss: float,
    when: str,
    indices: Sequence[int],
) -> TrainError:
    """The error for a loss that is not finite: the first operator whose output is not, while all its inputs are.

    `indices` are those of the batch's samples in their dataset. The caller must restore the random state before the
    failed forward pass, so that dropout draws the same masks.
    """
    what = f"the loss is {loss} at {when}"
    bad_inputs = [(name, x) for name, x in tensors(batch) if not _finite(devices.cpu(x.array))]
    if bad_inputs:
        name, rows = bad_inputs[0][0], devices.cpu(bad_inputs[0][1].array)
        bad = [r for r in range(len(rows) if rows.ndim else 0) if not _finite(rows[r])][:8]
        known = [str(indices[r]) for r in bad if r < len(indices)]
        which = f"tensor {name}" if name.isdigit() else name
        return TrainError(
            what,
            extra={
                "cause": f"the data itself: {which} of the batch contains NaN or infinity in samples {bad}",
                **({"samples": f"index {', '.join(known)} of the data"} if known else {}),
            },
            hint="correct the data, or check what augment() returns",
        )
    weights = [name for name, p in model.named_parameters() if not _finite(devices.cpu(p.array))]
    if weights:
        more = f" and {len(weights) - 1} more" if len(weights) > 1 else ""
        return TrainError(
            what,
            extra={"cause": f"the update before it made {weights[0]}{more} NaN or infinite"},
            hint="a smaller --lr, or ox.nn.utils.clip_grad_norm_ in a step of your own",
        )
    try:
        with switch_mode(watch=_checked), np.errstate(all="ignore"):
            step(model, batch)
    except _FirstError as found:
        return TrainError(
            what,
            where=found.where,
            extra={"cause": found.what},
            hint="a smaller --lr, or keep the operator's input in its range (clamp, + eps)",
        )
    return TrainError(
        what,
        extra={"cause": "not found: no operator of the same forward made it from finite values"},
        hint="a smaller --lr: the values are at the edge of what the element type holds",
    )


def _checked(
    run: Any, op: Any, arrays: list[Any], attributes: dict[str, Any], accelerated: Any, origin: Any = None
) -> Any:
    """A watch: raise at the first NaN from none, and the first infinity from finite values."""
    result = run(op, arrays, attributes, accelerated)
    given = [devices.cpu(a) for a in arrays if a is not None]
    several = result if isinstance(result, tuple) else (result,)
    if op.fused and op.rules:  # what it keeps for its gradient may be infinite: the logarithm of a masked row's sum, 0
        several = several[:1]
    for made in several:
        new = _problem(np.asarray(made) if isinstance(made, np.generic) else devices.cpu(made))
        if new and not any(_problem(a) in (new, "NaN") for a in given):
            ranges = ", ".join(
                f"{op.schema.input_at(i).name} {_range(devices.cpu(a))}"
                for i, a in enumerate(arrays[:SHOWN])
                if a is not None
            )
            raise _FirstError(f"{op.name} made the first {new} from {ranges}")
    return result


def _problem(array: np.ndarray[Any, Any]) -> str | None:
    if not is_floating(array.dtype) or _finite(array):
        return None
    return "NaN" if np.isnan(array.astype(np.float64)).any() else "infinity"


def _finite(array: np.ndarray[Any, Any]) -> bool:
    return not is_floating(array.dtype) or bool(np.isfinite(array).all())


def _range(array: np.ndarray[Any, Any]) -> str:
    size = f"{array.dtype} {list(array.shape)}"
    if not array.size or not is_floating(array.dtype):
        return size
    return f"{size} in [{float(array.min()):.3g}, {float(array.max()):.3g}]"
